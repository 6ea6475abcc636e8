#include "launcher/tune/trial.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "base/fd.h"
#include "launcher/run/commands.h"
#include "launcher/tune/watched_child.h"

namespace dslaunch::launcher {
namespace {

// Returns the options of a job that keeps nothing and ends at once when it is asked to.
RunOptions options_of_trial(RunOptions options, const std::vector<std::string>& overrides) {
    options.set.insert(options.set.end(), overrides.begin(), overrides.end());
    options.output.clear();
    options.no_output = true;
    options.grace_s = 0;
    options.log.quiet = true;
    options.log.straggler_interval_steps = 0;
    options.max_restarts = 0;
    options.job_id.clear();
    return options;
}

// Runs the job in the child process. Writes each line of metrics to METRICS. Never returns.
[[noreturn]] void be_trial(const RunOptions& options, int metrics, int messages) {
    // The parent may have ended before this call.
    const pid_t parent = ::getppid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(static_cast<int>(ExitCode::kInterrupted));
    const UniqueFd nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
    ::dup2(nowhere.get(), STDIN_FILENO);
    ::dup2(nowhere.get(), STDOUT_FILENO);
    ::dup2(messages, STDERR_FILENO);
    int code = static_cast<int>(ExitCode::kInternal);
    try {
        code = run_trial(options, [metrics](std::string_view line) {
            // If nobody reads the lines, the search has ended. Ends the job as Ctrl-C does.
            if (write_full(metrics, std::string(line) + "\n") != 0) ::raise(SIGTERM);
        });
    } catch (const Error& error) {
        code = static_cast<int>(error.code());
        fmt::print(stderr, "dslaunch: error: {}\n", error.what());
    } catch (const std::exception& error) {
        fmt::print(stderr, "dslaunch: error: {}\n", error.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
}

WatchedChild start(const RunOptions& options) {
    Pipe metrics = make_pipe(), messages = make_pipe();
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) fail(ExitCode::kSetup, "cannot start a trial: {}", errno_text(errno));
    if (pid == 0) {
        ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends this process
        metrics.read_end.reset();
        messages.read_end.reset();
        be_trial(options, metrics.write_end.get(), messages.write_end.get());
    }
    ::setpgid(pid, pid);
    return {pid, std::move(metrics.read_end), std::move(messages.read_end)};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TrialResult run_one_trial(const RunOptions& options, const std::vector<std::string>& overrides,
                          const TrialLimits& limits) {
    const auto began = std::chrono::steady_clock::now();
    TrialSteps steps(limits.steps);
    const ChildResult child = watch(
        start(options_of_trial(options, overrides)),
        [&](std::string_view line) {
            steps.add(line);
            return !steps.is_done();
        },
        limits.deadline, limits.signal_fd);
    TrialResult result;
    result.took_s = seconds_since(began);
    result.peak_bytes = steps.peak_bytes();
    result.exit_code = child.exit_code;
    if (child.end == ChildEnd::kInterrupted) {
        result.end = TrialEnd::kInterrupted;
    } else if (const auto step_s = steps.step_s();
               step_s && (child.end == ChildEnd::kAsked || child.exit_code == 0)) {
        result.end = TrialEnd::kMeasured;
        result.step_s = *step_s;
    } else if (child.end == ChildEnd::kTimeOver) {
        result.end = TrialEnd::kTimeOver;
    } else {
        result.why = cause_of(child.messages);
    }
    return result;
}

}  // namespace dslaunch::launcher
