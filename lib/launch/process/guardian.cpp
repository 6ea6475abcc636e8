#include "launch/process/guardian.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "launch/process/kill_group.h"
#include "launch/process/process_tree.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

sigset_t guarded_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::sigaddset(&set, number);
    return set;
}

int run_child(const std::function<int(int)>& body, pid_t guardian) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // A kill of the guardian's group, as by mpirun's daemon, must not reach this process as well:
    // one of the two has to end what the ranks have started.
    ::setpgid(0, 0);
    if (::getppid() != guardian) return static_cast<int>(ExitCode::kInterrupted);
    const sigset_t set = guarded_signals();
    const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) return static_cast<int>(ExitCode::kSetup);
    return body(signals.get());
}

int wait_for(pid_t child) {
    const sigset_t set = guarded_signals();
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (pid > 0) continue;
        siginfo_t info{};
        const int number = ::sigwaitinfo(&set, &info);
        if (number > 0 && number != SIGCHLD) ::kill(child, number);
    }
}

}  // namespace

bool kill_descendants(int limit_ms) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    for (;;) {
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        const auto left = descendants(::getpid());
        if (left.empty()) return true;
        if (std::chrono::steady_clock::now() > limit) return false;
        for (const ProcessName& process : left) signal_process(process, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

int run_guarded(const std::function<int(int signal_fd)>& body) {
    ::signal(SIGPIPE, SIG_IGN);
    const sigset_t set = guarded_signals();
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &set, &before);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t guardian = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) fail(ExitCode::kSetup, "cannot fork the agent: {}", errno_text(errno));
    if (child == 0) ::_exit(run_child(body, guardian));
    const int code = wait_for(child);
    // An agent that ended by itself has waited long enough for what does not die.
    const auto limit = code > 128 ? kUnkillableMax : kFarewellMax;
    kill_descendants(static_cast<int>(limit.count()));
    remove_kill_group_of(child);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return code;
}

}  // namespace dslaunch::launch
