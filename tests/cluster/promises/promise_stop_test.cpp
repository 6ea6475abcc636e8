// P6: a stop never blocks, neither because a process cannot die nor because a terminal stands
// still. Negative controls, done by hand: without the agents' last messages in the report
// (Supervisor::run), 0 of 2 processes are named; if a launcher never looks at its agents while the
// terminal stands still, the last test loses its host.
#include <sys/syscall.h>

#include <algorithm>

#include "cluster/promise.h"
#include "support/job_end.h"
#include "support/pty_process.h"
#include "support/skip.h"
#include "support/stalled_file_system.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// Returns true if PROCESS waits for the answer to a stat().
bool stop_asks_for_file(const ProcessName& process) {
    std::ifstream file("/proc/" + std::to_string(process.pid) + "/syscall");
    std::string call;
    file >> call;
    return call == std::to_string(SYS_newfstatat);
}

}  // namespace

TEST_CASE("P6: a process that cannot be killed is named with its state, and nobody waits for it") {
    const TemporaryFolder folder;
    StalledFileSystem stalled(folder.path() + "/stalled");
    if (!stalled.stands()) {
        report_skipped("stopping a process that cannot be killed",
                       "no FUSE file system can be mounted here (root and /dev/fuse are needed)");
        return;
    }
    JobProcess job(folder, on_pretended_hosts(folder, "h[1-2] slots=1\n") +
                               Words{"--grace", "3600", kStub, "stat",
                                     folder.path() + "/stalled/file", folder.path() + "/pids"});
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 2; }));
    const auto workers = recorded_processes(folder);
    REQUIRE(wait_until([&] {
        return stalled.is_asked() &&
               std::all_of(workers.begin(), workers.end(), stop_asks_for_file);
    }));
    const auto began = Steady::now();
    press_twice(job.pid());
    const int code = job.wait();
    const double wall_ms = milliseconds_since(began);
    INFO(job.err());
    CHECK(code == 76);
    int named = 0;
    for (const ProcessName& worker : workers) {
        CHECK(name_process(worker.pid) == worker);  // it is still there: it cannot be ended
        named += mentions(job.err(), std::to_string(worker.pid) + " (stub_rank, state D") ? 1 : 0;
    }
    std::printf(
        "P6 2 unkillable ranks: launcher ended after %.1f s, named with pid and state: %d "
        "of 2\n",
        wall_ms / 1000, named);
    CHECK(named == 2);
    CHECK(wall_ms < limit_ms(60'000));
    stalled.give_way();
    CHECK(wait_until([&] { return all_gone(workers); }));
}

TEST_CASE("P6: Ctrl-C ends a job although its terminal stands still") {
    const TemporaryFolder folder;
    PtyProcess job(on_pretended_hosts(folder, "h[1-2] slots=2\n") + Words{"--grace", "600", "yes"});
    REQUIRE(wait_until([&] { return descendants(job.pid()).size() >= 8; }));
    // After this time, the ranks' output has filled the terminal.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto all = descendants(job.pid());
    CHECK(all.size() >= 8);
    const auto began = Steady::now();
    press_twice(job.pid());
    CHECK(job.wait_without_reading() == 76);
    std::printf("P6 terminal that stands still: ended %.0f ms after Ctrl-C\n",
                milliseconds_since(began));
    CHECK(wait_until([&] { return all_gone(all); }, kGoneMaxMs));
}

TEST_CASE("P6: a job outlives a terminal that stands still for 40 s, and no line is lost",
          "[.long]") {
    const TemporaryFolder folder;
    const std::string script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); echo line $i; done";
    PtyProcess job(on_pretended_hosts(folder, "h1 slots=2\n") + Words{"sh", "-c", script});
    std::this_thread::sleep_for(std::chrono::seconds(40));
    const int code = job.wait();
    CHECK(code == 0);
    size_t lines = 0;
    for (const char c : job.shown()) lines += c == '\n' ? 1 : 0;
    CHECK(lines == 120'000);
}

}  // namespace dslaunch::test
