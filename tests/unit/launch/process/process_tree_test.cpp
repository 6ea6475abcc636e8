#include "launch/process/process_tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Starts a child that starts a child of its own and, if TO_EXIT, ends. The grandchild waits for a
// signal.
pid_t start_family(bool to_exit) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    if (::fork() == 0) {
        ::pause();
        ::_exit(0);
    }
    if (!to_exit) ::pause();
    ::_exit(0);
}

void end_all() {
    while (true) {
        for (const ProcessName& process : descendants(::getpid())) signal_process(process, SIGKILL);
        if (::waitpid(-1, nullptr, 0) < 0) return;
    }
}

}  // namespace

TEST_CASE(
    "descendants are children, their children, and what an ended child leaves to a subreaper") {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    CHECK(descendants(::getpid()).empty());
    const pid_t child = start_family(false);
    while (descendants(::getpid()).size() < 2) ::usleep(1000);
    CHECK(descendants(::getpid()).front().pid == child);
    end_all();
    CHECK(descendants(::getpid()).empty());

    const pid_t ended = start_family(true);
    REQUIRE(::waitpid(ended, nullptr, 0) == ended);
    REQUIRE(descendants(::getpid()).size() == 1);
    end_all();
    CHECK(descendants(::getpid()).empty());
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}
