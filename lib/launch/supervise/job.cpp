#include "launch/supervise/job.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "launch/jobs/job_record.h"
#include "launch/output/job_output.h"
#include "launch/process/kill_group.h"
#include "launch/process/timing.h"
#include "launch/supervise/job_loop.h"
#include "launch/supervise/supervisor.h"
#include "launch/transport/transport.h"
#include "launch/transport/tree/tree_transport.h"

namespace dslaunch::launch {
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

AttemptOutcome run_attempt(const JobSpec& spec, JobOutput& output, int signal_fd,
                           const AttemptNumber& number, const std::vector<CutOffHost>& cut_off) {
    const auto transport = make_job_transport(spec);
    Supervisor supervisor(spec, *transport, output, signal_fd);
    try {
        return {supervisor.run(number, cut_off), {}, {}};
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

int run_job(const JobSpec& spec, HealthSink health, MetricsTap metrics) {
    // If a local agent and its guardian are both killed, their processes become children of this
    // process, which then ends them. With ssh, no processes are adopted: the ssh program may keep a
    // connection open for later jobs, and this process must not end it.
    const bool adopts = spec.transport == TransportKind::kLocal;
    if (adopts) ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const UniqueFd signals = open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    StandardStreams streams;
    JobRecord record(spec,
                     [&](std::string_view line) { streams.write(2, fmt::format("{}\n", line)); });
    const auto attempt = [&](const JobSpec& wanted, JobOutput& output, const AttemptNumber& number,
                             const std::vector<CutOffHost>& cut_off) {
        output.tell_health_to(health);
        output.tell_metrics_to(metrics);
        AttemptOutcome outcome = run_attempt(wanted, output, signals.get(), number, cut_off);
        // If the agent has already waited kUnkillableMax for processes that do not end, the
        // launcher waits only briefly.
        const auto limit = outcome.result.left_processes ? kFarewellMax : kUnkillableMax;
        if (adopts) kill_descendants(static_cast<int>(limit.count()));
        return outcome;
    };
    try {
        JobFiles files(spec, signals.get());
        int code = JobLoop(spec, {record, streams, files}, attempt, signals.get()).run();
        streams.drain();
        // If the reader of the output is gone, the job has failed, like any program whose pipe is
        // closed.
        if (code == 0 && spec.prints_results()) {
            if (streams.reader_is_gone(1)) code = kOutputLostCode;
            if (const int fault = streams.fault(1); fault != 0)
                fail(ExitCode::kDisk, "the ranks' output is incomplete: {}", errno_text(fault));
        }
        record.end(code);
        return code;
    } catch (const Error& error) {
        record.note(fmt::format("dslaunch: error: {}", error.what()));
        record.end(static_cast<int>(error.code()));
        throw;
    }
}

}  // namespace dslaunch::launch
