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
#include "launch/job_loop.h"
#include "launch/job_output.h"
#include "launch/job_record.h"
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

AttemptOutcome run_attempt(const JobSpec& spec, JobOutput& output, int signal_fd, int restarts) {
    const auto transport = transport_of(spec);
    Supervisor supervisor(spec, *transport, output, signal_fd);
    try {
        return {supervisor.run(restarts), {}, {}};
    } catch (const Error& error) {
        if (supervisor.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
        if (error.code() != ExitCode::kHosts || supervisor.bad_hosts().empty()) throw;
        return {{}, supervisor.bad_hosts(), error.what()};
    }
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
    JobRecord record(spec, [](std::string_view line) {
        static_cast<void>(write_full(2, std::string(line) + "\n"));
    });
    const auto attempt = [&](const JobSpec& wanted, JobOutput& output, int restarts) {
        output.tell_health_to(health);
        AttemptOutcome outcome = run_attempt(wanted, output, signals.get(), restarts);
        // What an agent could not end in that time is not waited for once more.
        const auto limit = outcome.result.left_processes ? kFarewellMax : kUnkillableMax;
        if (adopts) kill_descendants(static_cast<int>(limit.count()));
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
