#include "launch/job.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "launch/guardian.h"
#include "launch/job_output.h"
#include "launch/supervisor.h"
#include "launch/timing.h"
#include "launch/transport.h"
#include "launch/tree_transport.h"

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

// Whether hosts may be reached over others: their transport must be one that a relay can use too,
// with nothing that was given to this launcher alone.
bool can_be_tree(const JobSpec& spec) {
    const TransportKind kind = spec.transport;
    return kind == TransportKind::kLocal || kind == TransportKind::kSsh ||
           (kind == TransportKind::kOpenSsh && spec.launcher_args.empty());
}

std::unique_ptr<Transport> transport_of(const JobSpec& spec) {
    auto transport = make_transport(spec);
    if (spec.fanout == 0 || spec.nodes.size() <= spec.fanout || !can_be_tree(spec)) {
        return transport;
    }
    TreeOptions options;
    options.transport = spec.transport;
    options.ssh_config_path = spec.ssh_config_path;
    options.fanout = spec.fanout;
    options.tries_itself = spec.transport != TransportKind::kLocal;
    return make_tree_transport(std::move(transport), options);
}

AttemptResult run_attempt(const JobSpec& spec, JobOutput& output, int signal_fd, int attempt) {
    const auto transport = transport_of(spec);
    Supervisor supervisor(spec, *transport, output, signal_fd);
    return supervisor.run(attempt);
}

}  // namespace

void hold_end_signals() {
    const sigset_t set = end_signals();
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

void release_end_signals() {
    const sigset_t set = end_signals();
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

UniqueFd open_end_signals() {
    hold_end_signals();
    const sigset_t set = end_signals();
    UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.valid()) fail(ExitCode::kSetup, "signalfd: {}", errno_text(errno));
    return signals;
}

int run_job(const JobSpec& spec, HealthSink health) {
    // What an agent on this machine leaves when it and its guardian are killed comes to us, and
    // goes. Not over ssh: a connection that the ssh program keeps for later is nobody's to end.
    const bool adopts = spec.transport == TransportKind::kLocal;
    if (adopts) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const UniqueFd signals = open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    JobOutput output(spec, std::move(health));
    int restarts = 0;
    bool changed_port = false;
    for (;;) {
        output.begin_attempt();
        AttemptResult result = run_attempt(spec, output, signals.get(), restarts);
        // What an agent could not end in that time is not waited for once more.
        const auto limit = result.left_processes ? kFarewellMax : kUnkillableMax;
        if (adopts) kill_descendants(static_cast<int>(limit.count()));
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
