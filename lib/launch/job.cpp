#include "launch/job.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/fd.h"
#include "launch/guardian.h"
#include "launch/job_loop.h"
#include "launch/job_output.h"
#include "launch/job_record.h"
#include "launch/supervisor.h"
#include "launch/timing.h"
#include "launch/transport.h"

namespace dslaunch {
namespace {

sigset_t end_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) {
        struct sigaction action {};
        ::sigaction(number, nullptr, &action);
        if (action.sa_handler != SIG_IGN) ::sigaddset(&set, number);
    }
    return set;
}

AttemptOutcome run_attempt(const JobSpec& spec, JobOutput& output, int signal_fd, int restarts) {
    const auto transport = make_transport(spec.transport, spec.ssh_config_path);
    Supervisor supervisor(spec, *transport, output, signal_fd);
    try {
        return {supervisor.run(restarts), {}, {}};
    } catch (const Error& error) {
        if (error.code() != ExitCode::kHosts || supervisor.bad_hosts().empty()) throw;
        return {{}, supervisor.bad_hosts(), error.what()};
    }
}

}  // namespace

void hold_end_signals() {
    const sigset_t set = end_signals();
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

int run_job(const JobSpec& spec) {
    // What an agent on this machine leaves when it and its guardian are killed comes to us, and
    // goes. Not over ssh: a connection that the ssh program keeps for later is nobody's to end.
    const bool adopts = spec.transport == TransportKind::kLocal;
    if (adopts) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    hold_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const sigset_t set = end_signals();
    const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) fail(ExitCode::kSetup, "signalfd: {}", errno_text(errno));
    JobRecord record(spec, [](std::string_view line) {
        static_cast<void>(write_full(2, std::string(line) + "\n"));
    });
    const auto attempt = [&](const JobSpec& wanted, JobOutput& output, int restarts) {
        AttemptOutcome outcome = run_attempt(wanted, output, signals.get(), restarts);
        if (adopts) kill_descendants(static_cast<int>(kUnkillableMax.count()));
        return outcome;
    };
    try {
        const int code = JobLoop(spec, record, attempt, signals.get()).run();
        record.end(code);
        return code;
    } catch (const Error& error) {
        record.note(fmt::format("dslaunch: error: {}", error.what()));
        record.end(static_cast<int>(error.code()));
        throw;
    }
}

}  // namespace dslaunch
