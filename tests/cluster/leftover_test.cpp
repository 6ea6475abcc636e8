// An agent that must end a previous attempt's processes may wait for them longer than any allowed
// silence. It names the processes that do not end. The limits are those in launch/process/timing.h,
// so the waits here are real; all waits run at the same time.
#include <sys/syscall.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "join_job.h"
#include "launch/process/timing.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/skip.h"
#include "support/stalled_file_system.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Lets the processes that wait for the file system end, whatever the test's result is.
struct GivesWay {
    StalledFileSystem& stalled;
    ~GivesWay() { stalled.give_way(); }
};

// Returns true if PROCESS waits for the answer to a stat() of a file.
bool asks_for_file(const ProcessName& process) {
    const std::string call = process_file(process.pid, "syscall");
    return call.starts_with(std::to_string(SYS_statx) + " ") ||
           call.starts_with(std::to_string(SYS_newfstatat) + " ");
}

// Makes a job in STATE whose launcher was killed, so that its record still says that it runs.
// Returns the job's launch id.
std::string make_dead_job(const TemporaryFolder& state) {
    const TemporaryFolder folder;
    JobProcess job(folder, {"env", "XDG_STATE_HOME=" + state.path(), kDslaunch, "--num_gpus", "1",
                            "--device", "cpu", "--rdzv-id", "dead", "sh", "-c",
                            "echo $$ >> " + folder.path() + "/pids; exec sleep 600"});
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 1; }));
    const auto ranks = recorded_processes(folder);
    job.signal(SIGKILL);
    REQUIRE(wait_until([&] { return all_gone(ranks); }));
    return nlohmann::json::parse(state.read("dslaunch/jobs/dead/job.json")).at("launch_id");
}

}  // namespace

// Negative control, done by hand: if agents are silent during this wait, the launcher gives them up
// after 15 s, and the report never names the process.
TEST_CASE(
    "a process that an attempt has left and that cannot die is named, by stop and a restart") {
    static_assert(kLeftoversMax > kSilenceMax);
    const TemporaryFolder folder, state, agent_folder, next_folder, stop_folder;
    StalledFileSystem stalled(folder.path() + "/stalled");
    if (!stalled.stands()) {
        return report_skipped(
            "what an attempt before has left and cannot be killed",
            "no FUSE file system can be mounted here (root and /dev/fuse are needed)");
    }
    const std::string file = folder.path() + "/stalled/file";
    JobProcess of_dead(folder, {"env", "DSL_LAUNCH_ID=" + make_dead_job(state), "stat", file});
    const GivesWay at_the_end{stalled};
    JoinJob job("setsid stat " + file + " > /dev/null 2>&1 & echo $! >> $PIDS; sleep 600");
    JobProcess guardian(agent_folder, job.agent(job.port()));
    const ProcessName left = job.left();
    const ProcessName left_by_dead = name_process(of_dead.pid());
    REQUIRE(wait_until(
        [&] { return stalled.is_asked() && asks_for_file(left) && asks_for_file(left_by_dead); }));
    JobProcess stop(stop_folder,
                    {"env", "XDG_STATE_HOME=" + state.path(), kDslaunch, "stop", "dead"});
    kill_with_its_guardian(guardian);
    JobProcess next(next_folder, job.agent(job.port()));

    const int stopped = stop.wait();
    INFO(stop.err() << stop.out());
    CHECK(stopped == 71);
    CHECK_THAT(stop.out(), Catch::Contains("process " + std::to_string(left_by_dead.pid) +
                                           " (stat) is still running and cannot be ended"));
    const std::string named = "cannot be killed: " + std::to_string(left.pid) + " (stat)";
    CHECK(wait_until([&] { return job.process().err().find(named) != std::string::npos; },
                     static_cast<int>((kLeftoversMax + 3 * kSilenceMax).count())));
    CHECK_THAT(job.process().err(), !Catch::Contains("has sent nothing"));
    // When the process can end, the next attempt begins.
    stalled.give_way();
    CHECK(job.process().wait() == 0);
    CHECK_THAT(job.process().out(), !Catch::Contains("BESIDE"));
    CHECK(name_process(left.pid) != left);
}
