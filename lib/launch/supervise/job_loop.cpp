#include "launch/supervise/job_loop.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kHostsCode = static_cast<int>(ExitCode::kHosts);

}  // namespace

JobLoop::JobLoop(const JobSpec& spec, JobSinks sinks, Attempt attempt, int signal_fd,
                 RestartTimes times)
    : spec_(spec),
      sinks_(sinks),
      attempt_(std::move(attempt)),
      signal_fd_(signal_fd),
      times_(std::move(times)),
      bad_(spec.elastic.hosts.size(), false) {}

bool JobLoop::interrupted_within(milliseconds time) const {
    pollfd entry{signal_fd_, POLLIN, 0};
    const auto limit = steady_clock::now() + time;
    for (;;) {
        sinks_.streams.flush();
        if (::poll(&entry, 1, 0) > 0) return true;
        const auto left = std::chrono::ceil<milliseconds>(limit - steady_clock::now());
        if (left.count() <= 0) return false;
        sinks_.streams.wait(left, signal_fd_);
    }
}

JobSpec JobLoop::next_spec() const {
    JobSpec spec = spec_;
    if (!spec.elastic.on()) return spec;
    const auto chosen = choose_hosts(bad_, spec.elastic);
    DSL_CHECK(chosen.has_value(), "an attempt with too few hosts");
    spec.nodes = spec.elastic.plan(*chosen);
    spec.world_size = world_size_of(spec.nodes);
    if (restarts_ > 0) spec.connect_max = std::min<milliseconds>(spec.connect_max, kAnswerMax);
    return spec;
}

// Marks the hosts in OUTCOME.bad_hosts as bad. Returns true if the job makes another attempt. The
// next attempt uses the hosts that are not bad. If these hosts are too few, it uses all hosts again
// after a pause.
bool JobLoop::leave_out_bad_hosts(const AttemptOutcome& outcome, JobOutput& output) {
    const ElasticRules& rules = spec_.elastic;
    for (const std::string& host : outcome.bad_hosts) {
        const auto found = std::find(rules.hosts.begin(), rules.hosts.end(), host);
        if (found != rules.hosts.end()) bad_[found - rules.hosts.begin()] = true;
    }
    if (rules.on() && choose_hosts(bad_, rules)) {
        output.note(fmt::format("dslaunch: warning: continuing without {}: {}",
                                counted(std::ssize(outcome.bad_hosts), "host"), outcome.refusal));
        return true;
    }
    if (rules.on() && choose_hosts(bad_, rules.nodes) && !has_told_of_waiting_)
        output.note(
            "dslaunch: enough hosts answer, but the config allows no job with the ranks of these "
            "hosts: see train_batch_size or elasticity in the config");
    if (restarts_ == 0) return false;  // nothing has run yet: the user can act
    if (steady_clock::now() + times_.gather_pause >= gather_end_) return false;
    if (!has_told_of_waiting_) {
        output.note(fmt::format("dslaunch: too few hosts answer; trying again for {} s: {}",
                                std::chrono::duration<double>(times_.gather_max).count(),
                                outcome.refusal));
    }
    has_told_of_waiting_ = true;
    std::fill(bad_.begin(), bad_.end(), false);
    return true;
}

std::string JobLoop::describe_restart() const {
    std::string text = fmt::format("dslaunch: restart {} of {}", restarts_, spec_.max_restarts);
    if (spec_.elastic.on()) {
        text += fmt::format(", with the hosts that answer ({} to {} of {} hosts)",
                            spec_.elastic.nodes.min, spec_.elastic.nodes.max,
                            spec_.elastic.hosts.size());
    }
    if (spec_.target_kind == TargetKind::kModel) {
        text += spec_.output_directory.empty()
                    ? "; training starts from the beginning, because nothing is saved without an "
                      "output folder (--output)"
                    : fmt::format("; training continues from the newest checkpoint in {}",
                                  spec_.output_directory);
    }
    return text;
}

bool JobLoop::begin_restart(const AttemptResult& result, JobOutput& output) {
    const bool can_start_again = spec_.transport != TransportKind::kJoin;
    if (result.port_was_taken && !has_changed_port_ && can_start_again) {
        has_changed_port_ = true;
        ++starts_;
        output.note(
            "dslaunch: another process took MASTER_PORT before rank 0 could listen on it; starting "
            "again with another port");
        return true;
    }
    const RestartVerdict verdict = decide_restart(
        {spec_.target_kind, result.exit_code, result.may_restart, restarts_, spec_.max_restarts});
    if (verdict == RestartVerdict::kSameMistake)
        output.note("dslaunch: no restart, because the same error would occur again");
    if (verdict != RestartVerdict::kRestart) return false;
    ++restarts_;
    ++starts_;
    const auto now = steady_clock::now();
    failures_in_a_row_ = now - attempt_began_ >= times_.steady_attempt ? 0 : failures_in_a_row_ + 1;
    gather_end_ = now + times_.delay(failures_in_a_row_) + times_.gather_max;
    has_told_of_waiting_ = false;
    std::fill(bad_.begin(), bad_.end(), false);
    const auto delay = times_.delay(failures_in_a_row_);
    output.note(describe_restart() +
                (delay.count() == 0
                     ? ""
                     : fmt::format(" (in {} s)", std::chrono::duration<double>(delay).count())));
    return true;
}

int JobLoop::end(int exit_code, JobOutput& output) {
    if (const std::string lost = exit_code == 0 ? output.lost_lines_text() : ""; !lost.empty()) {
        output.note(fmt::format("dslaunch: error: {}; the job itself has ended well", lost));
        exit_code = static_cast<int>(ExitCode::kDisk);
    }
    try {
        output.write_run_file(exit_code);
        sinks_.files.finish(sinks_.streams.hurries() ? JobFiles::kBrief : JobFiles::kLastWordsMax);
        output.tell_news();
    } catch (const Error& error) {
        // The job has already ended. A failed job keeps its exit code; a job that succeeded gets
        // the exit code of this error.
        output.note(fmt::format("dslaunch: error: {}", error.what()));
        if (exit_code == 0) return static_cast<int>(error.code());
    }
    return exit_code;
}

int JobLoop::end_interrupted(JobOutput& output) {
    output.note("dslaunch: interrupted between two attempts; nothing is running");
    return end(static_cast<int>(ExitCode::kInterrupted), output);
}

// Makes an attempt. If an error ends the job, writes it into run.json before rethrowing it.
AttemptOutcome JobLoop::make_attempt(const JobSpec& spec, JobOutput& output) {
    try {
        return attempt_(spec, output, {restarts_, starts_}, cut_off_);
    } catch (const Error& error) {
        if (restarts_ > 0) static_cast<void>(end(static_cast<int>(error.code()), output));
        throw;
    }
}

int JobLoop::run() {
    for (;;) {
        const JobSpec spec = next_spec();
        JobOutput output(spec, sinks_.streams, sinks_.files, &sinks_.record);
        if (restarts_ > 0) {
            output.mark_logs(fmt::format("dslaunch: restart {} of {}, {} ranks", restarts_,
                                         spec.max_restarts, spec.world_size));
        }
        output.run_file().set_restarts(restarts_);
        output.run_file().set_started_at(sinks_.record.started_at_s());
        sinks_.record.begin_attempt(spec, restarts_);
        attempt_began_ = steady_clock::now();
        const AttemptOutcome outcome = make_attempt(spec, output);
        if (!outcome.bad_hosts.empty()) {
            if (!leave_out_bad_hosts(outcome, output)) {
                if (restarts_ > 0) static_cast<void>(end(kHostsCode, output));
                fail(ExitCode::kHosts, "{}", outcome.refusal);
            }
            const bool waits = has_told_of_waiting_;
            if (interrupted_within(waits ? times_.gather_pause : milliseconds(0)))
                return end_interrupted(output);
            continue;
        }
        const auto& cut_off = outcome.result.cut_off;
        cut_off_.insert(cut_off_.end(), cut_off.begin(), cut_off.end());
        std::string report = outcome.result.report;
        if (report.ends_with('\n')) report.pop_back();
        if (!report.empty()) output.note(report);
        if (!begin_restart(outcome.result, output)) {
            std::string advice = outcome.result.advice;
            if (advice.ends_with('\n')) advice.pop_back();
            if (!advice.empty()) output.note(advice);
            return end(outcome.result.exit_code, output);
        }
        sinks_.record.wait_for_restart(restarts_);
        const bool waits = restarts_ > 0 && failures_in_a_row_ > 0;
        if (interrupted_within(waits ? times_.delay(failures_in_a_row_) : milliseconds(0)))
            return end_interrupted(output);
    }
}

}  // namespace dslaunch::launch
