#include "launch/supervise/rank_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"
#include "launch/protocol/control.h"
#include "launch/supervise/failure_report.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// If rank 0 reports within this time after the start that an address is in use, the report is
// assumed to concern the port that dslaunch has chosen.
constexpr std::chrono::seconds kPortClashMax{60};

}  // namespace

RankWatch::RankWatch(const JobSpec& spec, Fleet& fleet, JobOutput& output)
    : spec_(spec),
      fleet_(fleet),
      output_(output),
      advice_(spec),
      ranks_(static_cast<size_t>(spec.world_size)),
      stragglers_(spec.log.straggler_interval_steps) {
    for (size_t host = 0; host < spec.nodes.size(); ++host) {
        for (const PlannedWorker& worker : spec.nodes[host].workers) {
            RankRecord& rank = record(worker.environment.rank);
            rank.rank = worker.environment.rank;
            rank.host = spec.nodes[host].name;
            rank.host_index = host;
        }
    }
}

RankRecord& RankWatch::record(int64_t rank) {
    if (rank < 0 || rank >= static_cast<int64_t>(ranks_.size())) {
        fail(ExitCode::kInternal, "an agent reported rank {}, but the job has {} ranks", rank,
             ranks_.size());
    }
    return ranks_[rank];
}

RankRecord& RankWatch::record(size_t host, int64_t rank) {
    RankRecord& found = record(rank);
    if (found.host_index != host) {
        fail(ExitCode::kInternal,
             "the agent of another host reported rank {}, which runs on host {}", rank, found.host);
    }
    return found;
}

bool RankWatch::all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankRecord& r) { return r.ended; });
}

bool RankWatch::pump(const std::function<bool()>& done, Time deadline) {
    const auto output_looked_at = [&] {
        handle_lost_output();
        hear_of_peers();
        return done();
    };
    return fleet_.pump(output_looked_at, deadline);
}

void RankWatch::start(const std::vector<StartRequest>& requests) {
    started_at_ = steady_clock::now();
    output_.begin_work("starting " + counted(std::ssize(ranks_), "rank"));
    machine_ranks_ = requests.front().machine_ranks;
    for (size_t i = 0; i < requests.size(); ++i) {
        fleet_.send(i, FrameKind::kStart, encode(requests[i]));
    }
    const auto has_begun = [](const RankRecord& rank) { return rank.started || rank.ended; };
    static_cast<void>(pump(
        [&] { return plan_.has_end() || std::all_of(ranks_.begin(), ranks_.end(), has_begun); },
        steady_clock::now() + spec_.connect_max));
    output_.write_run_file(-1);
    if (spec_.log.print_environment && !plan_.is_now() && !plan_.has_end())
        output_.print_environments();
}

void RankWatch::watch() {
    while (!all_ended() && !plan_.is_now()) {
        if (steady_clock::now() >= plan_.deadline()) break;
        const EndPlan before = plan_;
        static_cast<void>(pump([&] { return all_ended() || plan_ != before; }, before.deadline()));
    }
    if (agents_end_by_ && !plan_.is_now()) {
        static_cast<void>(pump([&] { return !lost_host_.empty(); }, *agents_end_by_));
    }
    if (JobRecord* const record = output_.record())
        record->ranks(ranks_json(ranks_, steady_clock::now()));
}

bool RankWatch::take(size_t host, const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kStarted:
            handle_start(host, decode<WorkerStarted>(frame.payload));
            return true;
        case FrameKind::kOutput: {
            const auto text = decode<WorkerOutput>(frame.payload);
            output_.ranks().add(record(host, text.rank).rank, text.stream, text.lines);
            return true;
        }
        case FrameKind::kExited:
            handle_exit(host, decode<WorkerExited>(frame.payload));
            return true;
        case FrameKind::kControl:
            handle_control(host, decode<WorkerControl>(frame.payload));
            return true;
        default:
            return false;
    }
}

void RankWatch::handle_start(size_t host, const WorkerStarted& started) {
    record(host, started.rank).started = true;
    record(host, started.rank).pid = started.pid;
    if (started.rank == 0 && spec_.target_kind == TargetKind::kModel) warn_of_crowd();
    if (started.rank == 0 && spec_.binding.mode != BindMode::kAuto) {
        tell_binding(started);
    } else if (started.rank == 0 && spec_.target_kind == TargetKind::kModel) {
        tell_threads(started);
    }
    output_.run_file().add_rank(started);
}

void RankWatch::tell_binding(const WorkerStarted& started) const {
    const ProcessorVariables got = processor_variables(started.environment);
    if (spec_.binding.mode == BindMode::kNone || got.binding.empty() || got.threads.empty()) return;
    output_.detail(
        fmt::format("dslaunch: binding {}: rank 0 has processors {} of {} and OMP_NUM_THREADS={}; "
                    "the variable DSL_BINDING gives each rank its processors",
                    bind_mode_name(spec_.binding.mode), printable(got.binding),
                    spec_.nodes.front().name, printable(got.threads)));
}

std::string crowd_text(int64_t ranks, int64_t processors, const std::string& host) {
    if (ranks <= processors) return "";
    return fmt::format("{} share the {} of {}: this is slower than {}", counted(ranks, "worker"),
                       counted(processors, "processor"), host, counted(processors, "worker"));
}

// Warns if the first host has more ranks than processors, even if OMP_NUM_THREADS is set.
void RankWatch::warn_of_crowd() const {
    const std::string text =
        crowd_text(machine_ranks_, fleet_.nodes().front().hello.cores, spec_.nodes.front().name);
    if (!text.empty()) log_warn("launch", "{}", text);
}

// Reports the number of threads if dslaunch has chosen it, or if it is too large.
void RankWatch::tell_threads(const WorkerStarted& started) const {
    const ProcessorVariables got = processor_variables(started.environment);
    if (got.threads.empty()) return;
    const int64_t cores = fleet_.nodes().front().hello.cores;
    const std::string& host = spec_.nodes.front().name;
    const std::string ranks = counted(machine_ranks_, "rank");
    const bool is_given = find_variable(spec_.environment.set, kThreadsVariable) != nullptr ||
                          (spec_.environment.inherit_all && std::getenv(kThreadsVariable));
    if (!is_given)
        return output_.detail(
            fmt::format("dslaunch: OMP_NUM_THREADS={}: the {} processors of {} are divided among "
                        "{}; set OMP_NUM_THREADS to change this",
                        got.threads, cores, host, ranks));
    const int64_t threads = first_threads(got.threads).value_or(1);
    const int64_t wanted = threads * machine_ranks_;
    if (threads <= 1 || wanted <= cores) return;
    log_warn("launch",
             "OMP_NUM_THREADS={} makes {} threads for {} on the {} processors of {}, so the "
             "threads wait for each other (OMP_WAIT_POLICY={}); unset OMP_NUM_THREADS to give each "
             "rank its share",
             got.threads, wanted, ranks, cores, host, got.waiting.empty() ? "active" : got.waiting);
}

void RankWatch::handle_control(size_t host, const WorkerControl& control) {
    RankRecord& rank = record(host, control.rank);
    switch (static_cast<ControlKind>(control.kind)) {
        case ControlKind::kMetrics:
            return output_.metrics(control.payload);
        case ControlKind::kRunInfo:
            if (rank.rank != 0) return;
            output_.run_file().set_run_info(control.payload);
            return output_.write_run_file(-1);
        case ControlKind::kRunResult:
            if (rank.rank != 0) return;
            output_.run_file().set_run_result(control.payload);
            return output_.write_run_file(-1);
        case ControlKind::kReady:
            if (rank.rank == 0) output_.begin_steps();
            return;
        case ControlKind::kProgress:
            if (rank.rank == 0) output_.progress(control.payload);
            return;
        case ControlKind::kHealth:
            return output_.health(rank.rank, control.payload);
        case ControlKind::kFailure:
            rank.failure = decode<AgentProblem>(control.payload);
            return output_.ranks().expect_failure_text(rank.rank, rank.failure->message);
        case ControlKind::kHeartbeat:
            // The messages that a rank sends while it is being ended do not explain its end.
            if (plan_.has_end() || fleet_.stopping()) return;
            rank.heartbeat = decode<Heartbeat>(control.payload);
            rank.heard_at = steady_clock::now();
            if (rank.rank == 0) output_.rank_progress(rank.heartbeat->progress);
            if (JobRecord* const record = output_.record_for_ranks())
                record->ranks(ranks_json(ranks_, rank.heard_at));
            for (const std::string& line : stragglers_.look(ranks_)) output_.note(line);
            return;
        default:
            return;
    }
}

void RankWatch::handle_exit(size_t host, const WorkerExited& exited) {
    RankRecord& rank = record(host, exited.rank);
    if (rank.ended) return;
    output_.begin_work(std::ssize(ranks_) > 1 ? "ending the other ranks" : "");
    rank.ended = true;
    rank.exited = exited;
    rank.order = ++ends_;
    rank.told_to_end = exited.told_to_end || !lost_host_.empty();
    if (!rank.failed()) return;
    if (exited.pid != 0) rank.pid = exited.pid;
    const bool peer =
        exited.signal_number == 0 && exited.exit_status == static_cast<int>(ExitCode::kPeerLost);
    // A rank that lost a peer is not to blame, and the report about the rank or host at fault may
    // still arrive. Every agent answers a ping after its earlier reports. Thus all reports have
    // arrived once every agent has answered.
    if (peer && !plan_.has_end()) {
        peer_lost_at_ = steady_clock::now();
        fleet_.send_all(FrameKind::kPing);
    }
    stop_within(peer ? kCulpritWaitMax : milliseconds(0));
    if (exited.signal_number == SIGKILL && spec_.transport == TransportKind::kSlurm &&
        !fleet_.stopping()) {
        agents_end_by_ = steady_clock::now() + kStepEndMax;
    }
}

void RankWatch::stop_within(milliseconds time) {
    plan_.end_by(steady_clock::now() + time);
}

void RankWatch::hear_of_peers() {
    if (!peer_lost_at_ || !fleet_.heard_all_since(*peer_lost_at_)) return;
    peer_lost_at_.reset();
    stop_within(kCulpritWait);
}

void RankWatch::blame_host(size_t host, const std::string& cause) {
    if (lost_host_.empty() && !fleet_.stopping()) {
        lost_host_ = fmt::format("host {} is lost: {}", spec_.nodes[host].name, cause);
    }
    plan_.end_by(steady_clock::now());
}

void RankWatch::end_host(size_t host, bool lost) {
    if (lost) blame_host(host, fleet_.nodes()[host].error);
    for (RankRecord& rank : ranks_) {
        if (rank.ended || rank.host != spec_.nodes[host].name) continue;
        rank.ended = true;
        rank.told_to_end = true;
        rank.order = ++ends_;
        rank.unknown_end = lost ? "unknown, its host is lost" : "unknown, its agent ended first";
        rank.exited.exit_status = static_cast<int>(ExitCode::kHosts);
    }
}

// Ends the job if nobody reads its output: only the launcher notices this, and no rank gets
// SIGPIPE.
void RankWatch::handle_lost_output() {
    if (is_output_lost_ || !output_.is_lost()) return;
    is_output_lost_ = true;
    plan_.end_by(steady_clock::now());
}

bool RankWatch::end_wished(const std::string& cause) {
    if (plan_.lets_save() || spec_.grace.count() == 0) {
        plan_.end_now();
        output_.streams().hurry();
        return true;
    }
    plan_.let_save_until(steady_clock::now() + spec_.grace);
    const bool is_worker = spec_.target_kind == TargetKind::kModel;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(spec_.grace).count();
    if (!advice_.saves())
        output_.note(fmt::format(
            "dslaunch: {}; the ranks have {} s to end, a second Ctrl-C ends them at once", cause,
            seconds));
    else if (output_.newest_step() > 0)
        output_.note(fmt::format(
            "dslaunch: {}: saving to {}, for up to {} s; a second Ctrl-C ends the job at once",
            cause, printable(path_from_here(spec_.output_directory)), seconds));
    else
        output_.note(
            fmt::format("dslaunch: {}: {}, unless the current step ends within {} s; a second "
                        "Ctrl-C ends the job at once",
                        cause,
                        advice_.has_checkpoint()
                            ? "no step has ended since the checkpoint, so nothing new is saved"
                            : "no step has ended yet, so nothing is saved",
                        seconds));
    if (is_worker) {
        fleet_.send_all(FrameKind::kSave);
    } else {
        fleet_.send_all(FrameKind::kSignal, encode(SignalRequest{SIGTERM}));
    }
    return false;
}

bool RankWatch::port_was_taken() const {
    if (spec_.target_kind == TargetKind::kModel || spec_.master_port != 0) return false;
    if (!ranks_.front().failed() || !started_at_) return false;
    if (steady_clock::now() - *started_at_ > kPortClashMax) return false;
    for (const std::string& line : output_.ranks().last_lines(0)) {
        if (line.find("EADDRINUSE") != std::string::npos ||
            line.find("ddress already in use") != std::string::npos) {
            return true;
        }
    }
    return false;
}

std::string RankWatch::describe(size_t culprit) const {
    const int rank = ranks_[culprit].rank;
    std::string log;
    if (!spec_.output_directory.empty())
        log = fmt::format("{}/logs/rank-{}.log", path_from_here(spec_.output_directory), rank);
    return describe_failure(ranks_, culprit, output_.ranks().last_lines(rank), log);
}

AttemptResult RankWatch::conclude_interrupted() const {
    AttemptResult result;
    if (spec_.duty == ModelDuty::kServe && lost_host_.empty() && all_ended() &&
        std::ranges::none_of(ranks_, &RankRecord::failed)) {
        result.report = "dslaunch: the server has ended as requested\n";
        return result;
    }
    result.exit_code = static_cast<int>(ExitCode::kInterrupted);
    result.report = advice_.describe_interrupted(ranks_, output_.newest_step(), plan_.is_now());
    // The loss of a host is reported, since it may be the cause of the interruption: a scheduler
    // may have ended the other nodes because of it.
    if (!lost_host_.empty()) result.report += "dslaunch: " + lost_host_ + "\n";
    const auto failed = find_culprit(spec_.target_kind, ranks_);
    // A rank that failed before it was asked to end is reported: Ctrl-C is not the cause.
    if (failed && ranks_[*failed].failure && !ranks_[*failed].told_to_end) {
        result.report += describe(*failed);
    }
    return result;
}

AttemptResult RankWatch::conclude() const {
    if (fleet_.interrupted()) return conclude_interrupted();
    AttemptResult result;
    if (is_output_lost_) {
        result.exit_code = kOutputLostCode;
        result.report =
            "dslaunch: nobody reads the output of the ranks any more, so the ranks were ended, as "
            "SIGPIPE ends a program (redirect stdout to a file or /dev/null to run without a "
            "reader)\n";
        return result;
    }
    result.exit_code = job_exit_code(spec_.target_kind, ranks_);
    const auto culprit = find_culprit(spec_.target_kind, ranks_);
    // The launcher may hear from a rank that only lost its peer before it learns that the peer's
    // host was lost.
    const bool rank_is_to_blame =
        culprit && !ranks_[*culprit].told_to_end && !ranks_[*culprit].only_lost_a_peer() &&
        !(agents_end_by_ && ranks_[*culprit].exited.signal_number == SIGKILL);
    if (!lost_host_.empty() && !rank_is_to_blame) {
        result.exit_code = static_cast<int>(ExitCode::kHosts);
        result.may_restart = true;
        result.report = "dslaunch: " + lost_host_ + "\n" + describe_ranks(ranks_);
        return result;
    }
    if (!culprit) return result;
    // A program that could not be started cannot be started a moment later either.
    result.may_restart = ranks_[*culprit].exited.start_error.empty();
    result.port_was_taken = lost_host_.empty() && port_was_taken();
    result.report = describe(*culprit);
    result.advice = advice_.after_failure(ranks_[*culprit], output_.newest_step());
    return result;
}

}  // namespace dslaunch::launch
