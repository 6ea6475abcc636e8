// If nobody reads stderr, ranks, restarts and signals still work, whatever the launcher has to
// write: log lines, notes, or the error at the end.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/plan/join_token.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/listener.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// After this time, a launcher is not slow, but waits for its reader.
constexpr int kStuckMs = 60'000;

using Words = std::vector<std::string>;

// A full pipe that nobody reads.
class FullPipe {
  public:
    explicit FullPipe(const TemporaryFolder& folder) : path_(folder.path() + "/full") {
        REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
        end_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
        REQUIRE(end_.valid());
        const std::string block(4096, 'x');
        while (::write(end_.get(), block.data(), block.size()) > 0) {
        }
        while (::write(end_.get(), block.data(), 1) > 0) {
        }
    }
    // Returns the command that runs COMMAND with its stderr in the pipe.
    [[nodiscard]] Words behind(const Words& command) const {
        Words words = {"sh", "-c", "exec \"$@\" 2> " + path_, "sh"};
        words.insert(words.end(), command.begin(), command.end());
        return words;
    }

  private:
    std::string path_;
    UniqueFd end_;
};

// Sends signals to LAUNCHER until it ends, and returns its exit code; -1 if it does not end.
int told_to_end(JobProcess& launcher) {
    const bool ended = wait_until(
        [&] {
            launcher.signal(SIGTERM);
            return launcher.wait(200) >= 0;
        },
        kStuckMs);
    return ended ? launcher.wait() : -1;
}

}  // namespace

TEST_CASE("a job whose stderr nobody reads starts, restarts, and ends by a signal") {
    const TemporaryFolder folder, first, second, agent_0, agent_1;
    const FullPipe pipe(folder);
    const std::string token = folder.path() + "/token";
    std::ofstream(token) << make_token() << "\n";
    ::chmod(token.c_str(), 0600);
    const std::string where = "127.0.0.1:" + std::to_string(listen_on_loopback().port);
    JobProcess job(
        folder, pipe.behind({"env",
                             "XDG_STATE_HOME=" + folder.path(),
                             kDslaunch,
                             "--launcher",
                             "join",
                             "--listen",
                             where,
                             "--token-file",
                             token,
                             "--nnodes",
                             "2",
                             "--num_gpus",
                             "1",
                             "--device",
                             "cpu",
                             "--bind",
                             "core",
                             "--max-restarts",
                             "1",
                             "sh",
                             "-c",
                             "case $TORCHELASTIC_RESTART_COUNT in 0) echo $$ >> " + first.path() +
                                 "/pids;; *) echo $$ >> " + second.path() +
                                 "/pids;; esac; "
                                 "exec sleep 600"}));
    const Words agent = {kDslaunch, "agent", "--join", where, "--token-file", token};
    const JobProcess one(agent_0, agent);
    const JobProcess other(agent_1, agent);
    REQUIRE(wait_until([&] { return recorded_processes(first).size() == 2; }, kStuckMs));
    REQUIRE(signal_process(recorded_processes(first).front(), SIGKILL));
    REQUIRE(wait_until([&] { return recorded_processes(second).size() == 2; }, kStuckMs));
    const auto ranks = recorded_processes(second);
    job.signal(SIGTERM);
    CHECK(wait_until([&] { return all_gone(ranks); }, kStuckMs));
    // The launcher waits for a reader of its last lines until another signal arrives.
    CHECK(told_to_end(job) == 76);
}

TEST_CASE("notes and errors that nobody reads keep no launcher from ending") {
    const TemporaryFolder folder;
    const FullPipe pipe(folder);
    SECTION("an error on the command line") {
        JobProcess launcher(folder, pipe.behind({kDslaunch, "--no-such-option"}));
        REQUIRE(wait_until([&] { return holds_signal(launcher.pid(), SIGTERM); }));
        CHECK(told_to_end(launcher) == 64);
    }
    SECTION("notes before the start") {
        JobProcess launcher(
            folder,
            pipe.behind({"env", "XDG_STATE_HOME=" + folder.path(), kDslaunch, "--standalone",
                         "--no_ssh_check", "--device", "cpu", "--num_gpus", "1", "sleep", "600"}));
        REQUIRE(wait_until([&] { return holds_signal(launcher.pid(), SIGTERM); }));
        CHECK(told_to_end(launcher) == 76);
    }
}
