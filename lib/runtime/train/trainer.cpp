#include "runtime/train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/machine/sending_time.h"
#include "base/text.h"
#include "runtime/watch/process_usage.h"

namespace dslaunch::runtime {

namespace {

bool tells_planned(const TrainerParts& parts) {
    const bool is_first_of_host = parts.steps.collectives->topology().local_rank == 0;
    return parts.tells_planned.value_or(is_first_of_host);
}

std::unique_ptr<HeldOutLoss> held_out_loss(const TrainerParts& parts) {
    if (parts.evaluator == nullptr) return nullptr;
    return std::make_unique<HeldOutLoss>(
        HeldOutParts{parts.evaluator, parts.steps.state, parts.steps.collectives, parts.reporter,
                     parts.config},
        parts.resumed.evals);
}

std::unique_ptr<MemoryPhases> memory_phases(const TrainerParts& parts) {
    const bool is_first = parts.steps.collectives->topology().rank() == 0;
    if (!parts.config->memory_breakdown || !is_first) return nullptr;
    return std::make_unique<MemoryPhases>(parts.steps.device);
}

StepRunnerParts runner_parts(const TrainerParts& parts, MemoryPhases* memory) {
    StepRunnerParts steps = parts.steps;
    steps.memory = memory;
    return steps;
}

StepProfilerParts profiler_parts(const TrainerParts& parts) {
    return {.config = parts.config,
            .model = parts.profiled,
            .info = parts.steps.info,
            .steps_before = parts.resumed.step,
            .world_size = parts.steps.collectives->topology().world_size(),
            .peak_tflops = parts.peak.tflops};
}

StepReportParts report_parts(const TrainerParts& parts, const StepRunner& runner,
                             HeldOutLoss* held_out, const Clock& clock) {
    const StageParts& stage = parts.steps.stage;
    return {.config = parts.config,
            .account = parts.account,
            .runner = &runner,
            .held_out = held_out,
            .reporter = parts.reporter,
            .clock = &clock,
            .steps_before = parts.resumed.step,
            .samples_before = parts.resumed.earlier_samples + parts.resumed.samples_seen,
            .tokens_per_sample = parts.tokens_per_sample,
            .forward_flops = stage.link != nullptr ? stage.forward_flops / stage.stages()
                                                   : parts.steps.info->forward_flops(),
            .peak = parts.peak,
            .ranks_of_stage = parts.steps.collectives->topology().world_size() / stage.stages()};
}

// Returns the loss scale with which an earlier run ended; nullopt if this run has a scale of its
// own. A saved scale of 1 means that the earlier run used no scale, for example in bf16, so it is
// not restored. A fixed scale always comes from the config.
std::optional<LossScaleState> earlier_scale(const TrainerParts& parts) {
    const storage::TrainingState& resumed = parts.resumed;
    if (resumed.step <= 0 || !parts.config->precision.loss_scale.dynamic || resumed.loss_scale == 1)
        return std::nullopt;
    return LossScaleState{resumed.loss_scale, resumed.scale_steps, resumed.scale_good_steps,
                          resumed.scale_hysteresis_left};
}

// Returns true if a save is under way on any rank.
bool is_saving(std::span<const SavePhase> ranks) {
    return std::ranges::any_of(ranks, [](SavePhase phase) { return phase != SavePhase::kIdle; });
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> last_save_time(
    int64_t limit_s, std::chrono::system_clock::time_point start) {
    // The time reserved for the last evaluation, the weights and the exit is a tenth of the job's
    // time, but not more than this.
    constexpr std::chrono::seconds kFarewellMax{30};
    std::chrono::system_clock::time_point end = start + std::chrono::seconds(limit_s);
    if (limit_s == 0) {
        const char* const text = std::getenv("SLURM_JOB_END_TIME");
        const std::optional<int64_t> epoch_s = text ? parse_int(text) : std::nullopt;
        if (!epoch_s) return std::nullopt;
        end = std::chrono::system_clock::time_point(std::chrono::seconds(*epoch_s));
    }
    return end - std::min<std::chrono::system_clock::duration>(kFarewellMax, (end - start) / 10);
}

Trainer::Trainer(TrainerParts parts)
    : parts_(std::move(parts)),
      memory_(memory_phases(parts_)),
      runner_(runner_parts(parts_, memory_.get())),
      held_out_(held_out_loss(parts_)),
      report_(report_parts(parts_, runner_, held_out_.get(), clock_)),
      profiler_(profiler_parts(parts_)),
      meter_(runner_, parts_.loader, tells_planned(parts_)),
      schedule_(*parts_.config, parts_.resumed.updates, earlier_scale(parts_)),
      targets_(parts_.config->loss.mean, parts_.targets_vary, *parts_.steps.segments,
               *parts_.steps.collectives,
               {parts_.steps.stage.stage(), parts_.steps.stage.stages()}),
      step_(parts_.resumed.step),
      last_loss_(parts_.resumed.loss),
      timer_(clock_) {}

launch::Heartbeat Trainer::heartbeat() const {
    launch::Heartbeat heartbeat;
    const StepPosition position = runner_.position();
    heartbeat.instructions_done = position.instructions_done;
    heartbeat.instructions_per_step = position.instructions_per_step;
    const int64_t step = step_.load(std::memory_order_relaxed);
    heartbeat.where = step == 0 ? "before the first step" : fmt::format("step {}", step);
    if (held_out_ && held_out_->is_running()) heartbeat.where += ", evaluating";
    heartbeat.where += position.lanes;
    const uint64_t in_step = heartbeat.instructions_done % heartbeat.instructions_per_step;
    if (is_first_rank())
        heartbeat.progress = report_.line(static_cast<double>(in_step) /
                                          static_cast<double>(heartbeat.instructions_per_step));
    heartbeat.lanes.push_back(
        {std::string(plan::lane_name(plan::Lane::kCompute)), runner_.computed()});
    // Lanes without any work on this rank are left out, so that nobody compares them with other
    // ranks' lanes.
    if (const Duration sent = sending_time(); sent > Duration{0})
        heartbeat.lanes.push_back({launch::kLinkLane, sent});
    if (const Duration moved = runner_.on_disk(); moved > Duration{0})
        heartbeat.lanes.push_back({launch::kDiskLane, moved});
    return heartbeat;
}

TrainResult Trainer::run() {
    const config::RunConfig& config = *parts_.config;
    TrainResult result;
    evaluate_before(result);
    begin();
    while (step_ < config.steps && !result.ends()) {
        const StepFacts facts = next_step();
        const int64_t step = step_;
        // A job that is asked to end saves before it evaluates, since it may not have time for
        // both.
        const bool is_last = step == config.steps;
        if (!facts.end && (is_eval_due(step) || is_last)) result.eval_loss = evaluate(step, true);
        result.asked_to_end = facts.end || was_cut_short();
        if (is_over() && !is_last) result.ended_early = held_out_->judge().why_over();
        const bool saving = save_if_due(step, facts, result.ends());
        if (step < config.steps && !facts.end && !saving) adapt_plan(step, facts);
        // This evaluation does not count: the resumed run repeats it if it is due. No samples are
        // written, since the job has no time left for them.
        if (facts.end) result.eval_loss = evaluate(step, /*counts=*/false, /*writes=*/false);
    }
    finish(result);
    return result;
}

void Trainer::begin() {
    timer_.begin();
    report_.begin();
    meter_.begin();
}

// Runs the next step and reports it.
StepFacts Trainer::next_step() {
    const int64_t step = ++step_;
    const StepFacts facts = run_step(step);
    last_loss_ = facts.loss;
    if (parts_.between != nullptr) parts_.between->end_step(step, facts.loss, facts.skipped);
    if (is_first_rank()) report_step(step, facts);
    return facts;
}

// Changes the plan for the steps after STEP if the job wants another plan.
void Trainer::adapt_plan(int64_t step, const StepFacts& facts) {
    if (parts_.between == nullptr) return;
    const plan::StepPlan* const plan = parts_.between->after_step(last_run(step, facts));
    if (plan != nullptr) change_plan(*plan, step);
}

// Calls parts_.begin_steps, but only once: from then on, the run may change files of an earlier
// run.
void Trainer::begin_steps() {
    const std::function<void()> begin = std::exchange(parts_.begin_steps, {});
    if (begin) begin();
}

StepFacts Trainer::take_step() {
    begin_steps();
    StepFacts facts = next_step();
    if (parts_.checkpointer != nullptr) parts_.checkpointer->advance(facts.saves);
    if (!is_saving(facts.saves)) adapt_plan(step_, facts);
    return facts;
}

double Trainer::evaluate() {
    // evaluate() returns nullopt only if an evaluation ends early. A caller with its own loop does
    // not allow that (EvaluatorParts::leaves).
    return evaluate(step_, /*counts=*/false, /*writes=*/false).value();
}

TrainResult Trainer::end() {
    TrainResult result;
    finish(result);
    return result;
}

// Evaluates before the first step in two cases. In a new run, the loss is the baseline for later
// losses. In a resumed run, the earlier run ended after a save, but before it could evaluate the
// saved step. Then calls begin_steps(), after which this run may change files of the earlier run.
void Trainer::evaluate_before(TrainResult& result) {
    const storage::TrainingState& resumed = parts_.resumed;
    const int64_t before = resumed.step;
    const bool is_missing = held_out_ && !held_out_->judge().has_judged(before);
    if (is_eval_due(before) && (before == 0 || is_missing))
        result.eval_loss = evaluate(before, /*counts=*/before > 0);
    begin_steps();
    parts_.reporter->ready();
    if (is_best_news(before) && parts_.checkpointer) save(before, resumed.loss, /*waits=*/false);
    if (is_over() && before < parts_.config->steps)
        result.ended_early = held_out_->judge().why_over();
}

// Ends the last save, and completes RESULT with the facts of the whole run.
void Trainer::finish(TrainResult& result) {
    SteppingState& state = *parts_.steps.state;
    result.steps = step_;
    result.new_steps = result.steps - parts_.resumed.step;
    result.loss = last_loss_;
    result.time = timer_.total();
    report_.begin_other("saving");
    if (parts_.checkpointer) parts_.checkpointer->finish();
    if (held_out_) result.best_eval = held_out_->best();
    result.updates = updates();
    result.new_updates = result.updates - parts_.resumed.updates;
    state.meet();
    result.links = links_;
    result.comms = report_.comms();
    state.settle();
    // These peaks include the memory of the last save.
    DeviceMemoryState device;
    if (parts_.steps.device != nullptr) device = parts_.steps.device->memory_state();
    const std::array<Bytes, 3> own = {Bytes{process_usage().peak_rss_bytes}, device.peak,
                                      device.peak_held};
    for (const auto& [rss, lent, held] : gather_values(*parts_.steps.collectives, own)) {
        result.peak_rss = std::max(result.peak_rss, rss);
        result.peak_device = std::max(result.peak_device, lent);
        result.peak_device_held = std::max(result.peak_device_held, held);
    }
}

StepRun Trainer::last_run(int64_t step, const StepFacts& facts) const {
    return {step, facts.step_ms / 1e3, &runner_.plan(), runner_.spans()};
}

// Switches to PLAN after STEPS steps.
void Trainer::change_plan(const plan::StepPlan& plan, int64_t steps) {
    runner_.change_plan(plan, steps - parts_.resumed.step);
    report_.follow_plan();
}

// Starts a save if one is due. A save is always due if the run ENDS. Returns true if a save is
// under way on any rank when the call returns.
bool Trainer::save_if_due(int64_t step, const StepFacts& facts, bool ends) {
    const config::RunConfig& config = *parts_.config;
    Checkpointer* const checkpointer = parts_.checkpointer;
    if (checkpointer == nullptr) return false;
    checkpointer->advance(facts.saves);
    const bool at_interval = config.save.interval > 0 && step % config.save.interval == 0;
    const bool due = at_interval || ends || step == config.steps || is_best_news(step);
    // A job that was asked to end has no time for more steps, so it waits for the save.
    if (due) save(step, facts.loss, /*waits=*/facts.end || was_cut_short());
    return due || is_saving(facts.saves);
}

// Saves STEP, whose loss is LOSS. If WAITS, returns only after the save has ended.
void Trainer::save(int64_t step, double loss, bool waits) {
    const config::RunConfig& config = *parts_.config;
    storage::TrainingState training;
    training.step = step;
    training.updates = updates();
    training.samples_seen =
        parts_.resumed.samples_seen + (step - parts_.resumed.step) * config.batch.train_rows;
    training.earlier_samples = parts_.resumed.earlier_samples;
    training.seed = config.seed;
    training.loss = loss;
    if (held_out_) training.evals = held_out_->judge().record();
    const LossScaleState& scale = schedule_.scale_state();
    training.loss_scale = scale.scale;
    training.scale_steps = scale.steps;
    training.scale_good_steps = scale.good_steps;
    training.scale_hysteresis_left = scale.hysteresis_left;
    report_.begin_other("saving");
    parts_.steps.state->meet();
    parts_.checkpointer->begin(training);
    if (waits || !config.save.async) parts_.checkpointer->finish();
}

// Returns true once there is no time for another step and another save.
bool Trainer::is_time_over() const {
    const Duration save = parts_.checkpointer ? parts_.checkpointer->longest() : Duration{0};
    const auto needed = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        2 * timer_.longest() + 2 * save);
    return parts_.save_by && std::chrono::system_clock::now() + needed > *parts_.save_by;
}

StepFacts Trainer::run_step(int64_t step) {
    report_.begin_step(step);
    // The schedule counts updates, so a skipped step does not advance it.
    schedule_.begin_step();
    const int64_t update = updates() + 1;
    if (parts_.between != nullptr)
        if (const plan::StepPlan* const plan = parts_.between->before_step(update))
            change_plan(*plan, step - 1);
    const double scale = schedule_.scale();
    parts_.steps.state->begin_step(
        {step, update, schedule_.lr(), scale, report_.is_logged(step), schedule_.betas()});
    StepTargets targets = targets_.of(step - 1);
    if (is_first_rank()) report_.warn_of_targets(step, targets);
    const double weight = targets.weight;
    parts_.steps.segments->set_updates(updates());
    parts_.steps.segments->begin_step(step - 1, weight * scale, std::move(targets.empty));
    profiler_.run(step, [this] { runner_.run_step(); });
    double loss = 0;
    for (const double micro : parts_.steps.segments->losses()) loss += micro;
    StepFacts facts = gather(loss * weight);
    facts.loss_scale = scale;
    end_update(step, facts);
    facts.step_ms = to_milliseconds(timer_.end_step());
    return facts;
}

// Counts the update, unless the step is skipped, and updates the loss scale. All ranks know the
// same overflow, so they get the same scale.
void Trainer::end_update(int64_t step, StepFacts& facts) {
    const std::optional<Overflow> overflow = parts_.steps.state->overflow();
    facts.skipped = overflow.has_value();
    const bool changed = schedule_.end_step(facts.skipped);
    if (!facts.skipped || !is_first_rank()) return;
    log_warn("train", "step {} is skipped: {}{}; loss scale {}{}", step,
             overflow->parameter < 0
                 ? "the gradient norm overflows"
                 : fmt::format("the gradient of {} is not finite",
                               parts_.steps.info->parameters[overflow->parameter].name),
             overflow->rank < 0 ? "" : fmt::format(" on rank {}", overflow->rank), facts.loss_scale,
             changed ? fmt::format(", from now on {}", schedule_.scale()) : "");
}

// Exchanges the facts of the step with all ranks. LOSS is this rank's.
StepFacts Trainer::gather(double loss) {
    const std::optional<graph::RewardMeans> rewards = parts_.steps.segments->rewards();
    RankFacts mine = meter_.take();
    mine.loss = loss;
    mine.rewards = rewards.value_or(graph::RewardMeans{});
    mine.has_rewards = rewards.has_value();
    mine.end = parts_.reporter->asked_to_end() || is_time_over();
    const SavePhase save = parts_.checkpointer ? parts_.checkpointer->phase() : SavePhase::kIdle;
    const StepLinks own = meter_.take_links();
    runner_.reach_end();
    StepFacts all =
        gather_facts(*parts_.steps.collectives, parts_.steps.stage.stages(), mine, save, own);
    links_ += all.links;
    return all;
}

// Reports a step that has ended. Only the first rank calls it.
void Trainer::report_step(int64_t step, const StepFacts& facts) {
    if (step == parts_.config->trace_step && parts_.between != nullptr)
        parts_.between->trace_step(last_run(step, facts));
    report_.end_step(step, facts, rates());
    if (memory_ != nullptr && report_.is_logged(step))
        log_info("train", "step {}: memory after {} on rank 0", step, memory_->take());
}

// Evaluates after STEP. If COUNTS, the result may make STEP the best checkpoint or end the run
// early. If WRITES, samples are written too.
std::optional<double> Trainer::evaluate(int64_t step, bool counts, bool writes) {
    writes = writes && parts_.after_evaluation != nullptr;
    if (!held_out_ && !writes) return std::nullopt;
    report_.begin_other("evaluating");
    std::optional<double> loss;
    if (held_out_)
        loss = held_out_->evaluate(step, updates(), counts,
                                   [this](double done) { report_.do_other(done); });
    if (writes && !was_cut_short()) {
        report_.begin_other("writing samples");
        parts_.steps.state->meet();
        parts_.steps.state->settle();
        parts_.after_evaluation(step);
    }
    // The time of an evaluation is not part of any step's time.
    if (loss || writes) timer_.skip();
    return loss;
}

}  // namespace dslaunch::runtime
