#include "launch/job.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "base/fd.h"
#include "launch/guardian.h"
#include "launch/job_output.h"
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

AttemptResult run_attempt(const JobSpec& spec, JobOutput& output, int signal_fd, int attempt) {
    const auto transport = make_transport(spec.transport, spec.ssh_config_path);
    Supervisor supervisor(spec, *transport, output, signal_fd);
    return supervisor.run(attempt);
}

}  // namespace

void hold_end_signals() {
    const sigset_t set = end_signals();
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

int run_job(const JobSpec& spec, HealthSink health) {
    // What an agent on this machine leaves when it and its guardian are killed comes to us, and
    // goes. Not over ssh: a connection that the ssh program keeps for later is nobody's to end.
    const bool adopts = spec.transport == TransportKind::kLocal;
    if (adopts) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    hold_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const sigset_t set = end_signals();
    const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) fail(ExitCode::kSetup, "signalfd: {}", errno_text(errno));
    JobOutput output(spec, std::move(health));
    int restarts = 0;
    bool changed_port = false;
    for (;;) {
        output.begin_attempt();
        AttemptResult result = run_attempt(spec, output, signals.get(), restarts);
        if (adopts) kill_descendants(static_cast<int>(kUnkillableMax.count()));
        output.finish();
        if (!result.report.empty()) {
            result.report.pop_back();
            output.note(result.report);
        }
        if (result.port_was_taken && !changed_port) {
            changed_port = true;
            output.note(
                "dslaunch: MASTER_PORT was taken by somebody else before rank 0 could listen; "
                "starting once more with another");
            continue;
        }
        if (result.may_restart && restarts < spec.max_restarts) {
            ++restarts;
            output.note(fmt::format("dslaunch: restart {} of {}", restarts, spec.max_restarts));
            continue;
        }
        try {
            output.write_run_file(result.exit_code);
        } catch (const Error& error) {
            // The job has ended: what it ended with counts before the report about it.
            output.note(fmt::format("dslaunch: error: {}", error.what()));
            if (result.exit_code == 0) return static_cast<int>(error.code());
        }
        return result.exit_code;
    }
}

}  // namespace dslaunch
