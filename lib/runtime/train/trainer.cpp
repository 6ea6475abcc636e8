#include "runtime/train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/moving_line.h"
#include "base/text.h"
#include "base/text/json.h"
#include "plan/step/plan_check.h"
#include "runtime/memory/lending_allocator.h"
#include "runtime/schedules/learning_rate.h"
#include "runtime/train/process_usage.h"
#include "runtime/train/step_metrics.h"

namespace dslaunch::runtime {

namespace {

// Describes INSTRUCTION. NUMBER is its segment's number in the model.
std::string describe_instruction(const plan::ModelInfo& info, int number,
                                 const plan::Instruction& instruction) {
    std::string text(plan::op_name(instruction.op));
    if (instruction.segment >= 0)
        text += fmt::format(" of segment {} ({})", number, info.segments[instruction.segment].name);
    if (instruction.bucket >= 0) text += fmt::format(" of bucket {}", instruction.bucket);
    if (instruction.micro_step >= 0)
        text += fmt::format(" in micro step {}", instruction.micro_step);
    return text;
}

LaneStreams lane_streams(const TrainerParts& parts) {
    LaneStreams streams;
    if (parts.device == nullptr) return streams;
    const auto set = [&](plan::Lane lane, device::Queue& queue) {
        streams.of_lane[static_cast<size_t>(lane)] = queue.stream();
    };
    set(plan::Lane::kCompute, parts.device->compute());
    set(plan::Lane::kCommunication, parts.device->communication());
    streams.limit = parts.time_limit;
    return streams;
}

// Returns "0:07", with hours from the first on.
std::string time_left_text(double seconds) {
    constexpr double kHour = 3600;
    if (seconds >= kHour) return clock_text(seconds);
    const auto whole = static_cast<int64_t>(seconds);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> last_save_time(
    int64_t limit_s, std::chrono::system_clock::time_point start) {
    // A tenth of the time, at most this, is for the last evaluation, the weights and the exit.
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
      executor_(*parts_.plan, *this, lane_streams(parts_)),
      tier_peaks_(plan::peak_by_tier(*parts_.plan)),
      kind_peaks_(plan::peak_by_kind(*parts_.plan)),
      line_(clock_, parts_.config->steps),
      scaler_(parts_.config->precision.loss_scale),
      targets_(parts_.config->loss.mean, parts_.targets_vary, *parts_.segments, *parts_.collectives,
               {parts_.stage.stage(), parts_.stage.stages()}),
      comms_(parts_.config->comms_logger,
             parts_.collectives->topology().world_size() / parts_.stage.stages(),
             parts_.config->zero.stage == 0) {
    const storage::TrainingState& resumed = parts_.resumed;
    step_ = resumed.step;
    updates_ = resumed.updates;
    // A run whose scale never moved, in bf16 say, saves 1; a scale that the config fixes stays.
    if (resumed.step > 0 && parts_.config->precision.loss_scale.dynamic && resumed.loss_scale != 1)
        scaler_ = LossScaler(parts_.config->precision.loss_scale,
                             {resumed.loss_scale, resumed.scale_steps, resumed.scale_good_steps,
                              static_cast<int64_t>(resumed.scale_hysteresis_left)});
}

void Trainer::run(const plan::Instruction& instruction) {
    const TrafficScope scope(plan::traffic_kind(instruction.op));
    switch (instruction.op) {
        case plan::Op::kLoad:
        case plan::Op::kForward:
        case plan::Op::kRecompute:
        case plan::Op::kBackwardInput:
            return parts_.segments->run(instruction);
        case plan::Op::kBackward:
        case plan::Op::kBackwardWeight: {
            parts_.state->begin_backward(instruction.micro_step);
            {
                const LendingScope lending(parts_.state->gradient_memory());
                parts_.segments->run(instruction);
            }
            return parts_.state->end_segment(instruction.segment);
        }
        case plan::Op::kSend:
        case plan::Op::kReceive:
            return run_transfer(instruction);
        case plan::Op::kTie:
            return run_tie(instruction);
        default:
            return parts_.state->run(instruction);
    }
}

void Trainer::poison(const std::string& why) {
    parts_.collectives->poison(why);
    for (Collectives* const group : parts_.groups) group->poison(why);
    if (parts_.stage.link != nullptr) parts_.stage.link->abort(why);
}

void Trainer::check_device() {
    if (parts_.device != nullptr) parts_.device->check();
}

int Trainer::segment_of_model(int segment) const {
    return dslaunch::plan::segment_of_model(parts_.stage.parts, segment);
}

TrafficTable Trainer::traffic() const {
    TrafficTable all = parts_.collectives->traffic();
    for (const Collectives* const group : parts_.groups) all += group->traffic();
    if (parts_.stage.far != nullptr) all += parts_.stage.far->traffic();
    return all;
}

// Returns what this rank has moved since the last call.
StepLinks Trainer::own_links() {
    StepLinks links;
    TrafficTable now = traffic();
    links.moved = now.since(traffic_before_);
    traffic_before_ = std::move(now);
    const bool first_of_host = parts_.collectives->topology().local_rank == 0;
    if (parts_.tells_planned.value_or(first_of_host)) links.planned = parts_.plan->sent_by_kind();
    return links;
}

// Returns the number of a lane's messages, the same at both ends.
uint32_t Trainer::message_number(plan::Lane lane) {
    return (static_cast<uint32_t>(lane) - static_cast<uint32_t>(plan::Lane::kSend)) / 2;
}

void Trainer::run_transfer(const plan::Instruction& instruction) {
    const StageLink& link = *parts_.stage.link;
    const uint32_t number = message_number(instruction.lane);
    const StageMessage message{instruction.part, instruction.gradients, instruction.micro_step};
    const auto send = [&](const std::vector<c10::IValue>& values) {
        link.send(instruction.peer, number, values, message);
    };
    if (instruction.op == plan::Op::kSend) {
        if (!instruction.gradients) return send(parts_.segments->take_values(instruction));
        std::vector<c10::IValue> gradients;
        for (at::Tensor& gradient : parts_.segments->take_gradients(instruction))
            gradients.emplace_back(std::move(gradient));
        return send(gradients);
    }
    const std::vector<c10::IValue> values = link.receive(instruction.peer, number, message);
    if (!instruction.gradients) return parts_.segments->put_values(instruction, values);
    std::vector<at::Tensor> gradients;
    for (const c10::IValue& value : values) gradients.push_back(value.toTensor());
    parts_.segments->put_gradients(instruction, gradients);
}

void Trainer::run_tie(const plan::Instruction& instruction) {
    const auto bucket = static_cast<size_t>(instruction.bucket);
    // The number comes after the transfers' numbers. A parameter has one bucket in each stage, and
    // all stages come to their ties in one order.
    const uint32_t number = message_number(plan::Lane::kReceiveUpBack) + 1;
    parts_.stage.link->sum(parts_.state->tied_gradients(instruction.bucket),
                           parts_.stage.stages_of_bucket.at(bucket), number);
}

launch::Heartbeat Trainer::heartbeat() const {
    launch::Heartbeat heartbeat;
    const std::lock_guard lock(plan_mutex_);
    heartbeat.instructions_done =
        executor_.instructions_done() + ends_reached_ + static_cast<uint64_t>(instructions_before_);
    heartbeat.instructions_per_step = parts_.plan->instructions.size() + 1;
    const int64_t step = step_.load(std::memory_order_relaxed);
    heartbeat.where = step == 0 ? "before the first step" : fmt::format("step {}", step);
    if (evaluating_.load(std::memory_order_relaxed)) heartbeat.where += ", evaluating";
    for (int l = 0; l < plan::kLanes; ++l) {
        const int current = executor_.current(static_cast<plan::Lane>(l));
        if (current < 0) continue;
        const plan::Instruction& instruction = parts_.plan->instructions[current];
        heartbeat.where += fmt::format(
            ", {}: {}", plan::lane_name(static_cast<plan::Lane>(l)),
            describe_instruction(*parts_.info, segment_of_model(instruction.segment), instruction));
    }
    const uint64_t in_step = heartbeat.instructions_done % heartbeat.instructions_per_step;
    if (is_first_rank())
        heartbeat.progress = line_.text(static_cast<double>(in_step) /
                                        static_cast<double>(heartbeat.instructions_per_step));
    heartbeat.lanes.push_back({std::string(plan::lane_name(plan::Lane::kCompute)),
                               executor_.worked(plan::Lane::kCompute)});
    return heartbeat;
}

TrainResult Trainer::run() {
    const config::RunConfig& config = *parts_.config;
    TrainResult result;
    const int64_t before = parts_.resumed.step;
    result.steps = before;
    result.loss = parts_.resumed.loss;
    parts_.reporter->ready();
    // The loss before training shows the worth of the later ones.
    if (config.eval_interval > 0 && before == 0) result.eval_loss = evaluate(0);
    train_begin_ = last_step_end_ = clock_.now();
    traffic_before_ = traffic();
    faults_before_ = process_usage().page_faults;
    for (int64_t step = before + 1; step <= config.steps && !result.asked_to_end; ++step) {
        step_ = step;
        const StepFacts facts = run_step(step);
        if (parts_.between != nullptr) parts_.between->end_step(step, facts.loss, facts.skipped);
        result.steps = step;
        result.loss = facts.loss;
        result.peak_rss = Bytes{facts.peak_rss_bytes};
        result.asked_to_end = facts.end;
        if (is_first_rank()) {
            if (step == config.trace_step && parts_.between != nullptr)
                parts_.between->trace_step(last_run(step, facts));
            report_step(step, facts);
            interval_ms_ += facts.step_ms;
            ++interval_steps_;
            if (config.wall_clock_breakdown)
                breakdown_.add(*parts_.plan, executor_.spans(), executor_.compute_waited());
            if (comms_.enabled())
                comms_.add(step, *parts_.plan, executor_.spans(), facts.links.moved);
            if (is_logged(step)) report_progress(step, facts);
        }
        const bool saving = save_if_due(step, facts);
        if (parts_.between != nullptr && step < config.steps && !facts.end && !saving)
            adapt_plan(last_run(step, facts));
        const bool due = config.eval_interval > 0 && step % config.eval_interval == 0;
        if (due || step == config.steps || facts.end) result.eval_loss = evaluate(step);
        if (eval_cut_short_ && !facts.end) {
            result.asked_to_end = true;
            if (parts_.checkpointer) save(step, facts);
        }
    }
    line_.begin_other("saving");
    if (parts_.checkpointer) parts_.checkpointer->finish();
    result.best_eval = best_eval_;
    result.updates = updates_;
    result.new_steps = result.steps - before;
    result.new_updates = updates_ - parts_.resumed.updates;
    result.time = last_step_end_ - train_begin_;
    parts_.state->meet();
    result.links = links_;
    result.comms = comms_.summary();
    parts_.state->settle();
    // These peaks include the memory of the last save.
    DeviceMemoryState device;
    if (parts_.device != nullptr) device = parts_.device->memory_state();
    const std::array<Bytes, 3> own = {Bytes{process_usage().peak_rss_bytes}, device.peak,
                                      device.peak_held};
    for (const auto& [rss, lent, held] : gather_values(*parts_.collectives, own)) {
        result.peak_rss = std::max(result.peak_rss, rss);
        result.peak_device = std::max(result.peak_device, lent);
        result.peak_device_held = std::max(result.peak_device_held, held);
    }
    return result;
}

StepRun Trainer::last_run(int64_t step, const StepFacts& facts) const {
    return {step, facts.step_ms / 1e3, parts_.plan, executor_.spans()};
}

void Trainer::adapt_plan(const StepRun& run) {
    const plan::StepPlan* const plan = parts_.between->after_step(run);
    if (plan != nullptr) change_plan(*plan, run.step);
}

// Changes to PLAN after STEPS.
void Trainer::change_plan(const plan::StepPlan& plan, int64_t steps) {
    parts_.state->change_plan(plan);
    tier_peaks_ = plan::peak_by_tier(plan);
    kind_peaks_ = plan::peak_by_kind(plan);
    const std::lock_guard lock(plan_mutex_);
    executor_.change_plan(plan);
    parts_.plan = &plan;
    const uint64_t done = executor_.instructions_done() + ends_reached_;
    instructions_before_ = (steps - parts_.resumed.step) * (std::ssize(plan.instructions) + 1) -
                           static_cast<int64_t>(done);
}

// Returns whether a save is under way now, on any rank.
bool Trainer::save_if_due(int64_t step, const StepFacts& facts) {
    const config::RunConfig& config = *parts_.config;
    Checkpointer* const checkpointer = parts_.checkpointer;
    if (checkpointer == nullptr) return false;
    checkpointer->advance(facts.saves);
    const bool at_interval = config.save.interval > 0 && step % config.save.interval == 0;
    const bool due = at_interval || facts.end || step == config.steps;
    if (due) save(step, facts);
    return due || std::ranges::any_of(facts.saves,
                                      [](SavePhase phase) { return phase != SavePhase::kIdle; });
}

void Trainer::save(int64_t step, const StepFacts& facts) {
    const config::RunConfig& config = *parts_.config;
    storage::TrainingState training;
    training.step = step;
    training.updates = updates_;
    training.samples_seen =
        parts_.resumed.samples_seen + (step - parts_.resumed.step) * config.batch.train_rows;
    training.seed = config.seed;
    training.loss = facts.loss;
    const LossScaleState& scale = scaler_.state();
    training.loss_scale = scale.scale;
    training.scale_steps = scale.steps;
    training.scale_good_steps = scale.good_steps;
    training.scale_hysteresis_left = scale.hysteresis_left;
    line_.begin_other("saving");
    parts_.state->meet();
    parts_.checkpointer->begin(training);
    // A job that is asked to end has no time for more than this.
    if (facts.end || eval_cut_short_ || !config.save.async) parts_.checkpointer->finish();
}

// Returns true once a step and a save more would not fit.
bool Trainer::time_is_over() const {
    const Duration save = parts_.checkpointer ? parts_.checkpointer->longest() : Duration{0};
    const auto needed = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        2 * longest_step_ + 2 * save);
    return parts_.save_by && std::chrono::system_clock::now() + needed > *parts_.save_by;
}

bool Trainer::is_logged(int64_t step) const {
    const config::RunConfig& config = *parts_.config;
    return step == 1 || step == config.steps ||
           step % std::max<int64_t>(1, config.print_interval) == 0;
}

StepFacts Trainer::run_step(int64_t step) {
    const config::RunConfig& config = *parts_.config;
    line_.begin_step(step);
    // A skipped step moves no schedule.
    lr_ = learning_rate(config.scheduler, config.optimizer.lr, updates_);
    if (parts_.between != nullptr)
        if (const plan::StepPlan* const plan = parts_.between->before_step(updates_ + 1))
            change_plan(*plan, step - 1);
    const double scale = scaler_.scale();
    parts_.state->begin_step({step, updates_ + 1, lr_, scale, is_logged(step),
                              scheduled_betas(config.scheduler, updates_)});
    StepTargets targets = targets_of(step);
    const double weight = targets.weight;
    parts_.segments->begin_step(step - 1, weight * scale, std::move(targets.empty));
    executor_.run_step();
    double loss = 0;
    for (const double micro : parts_.segments->losses()) loss += micro;
    StepFacts facts = gather(loss * weight, parts_.segments->rewards());
    facts.loss_scale = scale;
    settle_loss_scale(step, facts);
    const TimePoint now = clock_.now();
    longest_step_ = std::max(longest_step_, now - last_step_end_);
    facts.step_ms = to_milliseconds(now - last_step_end_);
    last_step_end_ = now;
    return facts;
}

// Settles the scale, the same on every rank, since the state's verdict is one of all ranks.
void Trainer::settle_loss_scale(int64_t step, StepFacts& facts) {
    const std::optional<Overflow> overflow = parts_.state->overflow();
    facts.skipped = overflow.has_value();
    updates_ += facts.skipped ? 0 : 1;
    const bool changed = scaler_.update(facts.skipped);
    if (!facts.skipped || !is_first_rank()) return;
    log_warn("train", "step {} is skipped: {}{}; loss scale {}{}", step,
             overflow->parameter < 0
                 ? "the gradient norm overflows"
                 : fmt::format("the gradient of {} is not finite",
                               parts_.info->parameters[overflow->parameter].name),
             overflow->rank < 0 ? "" : fmt::format(" on rank {}", overflow->rank), facts.loss_scale,
             changed ? fmt::format(", from now on {}", scaler_.scale()) : "");
}

// Returns the weights of the micro steps of STEP, from 1, and says once that some count for
// nothing.
StepTargets Trainer::targets_of(int64_t step) {
    StepTargets targets = targets_.of(step - 1);
    const bool has_none = targets.weight == 0;
    if (targets.empty_everywhere == 0 || !is_first_rank()) return targets;
    if (has_none && !std::exchange(said_no_targets_, true))
        log_warn("train",
                 "step {}: no target of the global batch counts: the loss is 0, and the update is "
                 "one with gradients of 0; said once",
                 step);
    if (!has_none && !std::exchange(said_empty_batches_, true))
        log_warn("train", "step {}: no target counts in {}, which the mean leaves out; said once",
                 step, counted(targets.empty_everywhere, "micro batch"));
    return targets;
}

StepFacts Trainer::gather(double loss, const std::optional<graph::RewardMeans>& rewards) {
    const ProcessUsage usage = process_usage();
    const Duration data_waited = parts_.loader == nullptr ? Duration{0} : parts_.loader->waited();
    RankFacts mine;
    mine.loss = loss;
    mine.rewards = rewards.value_or(graph::RewardMeans{});
    mine.has_rewards = rewards.has_value();
    mine.rss_bytes = usage.rss_bytes;
    mine.peak_rss_bytes = usage.peak_rss_bytes;
    mine.page_faults = usage.page_faults - faults_before_;
    mine.data_wait_ms = to_milliseconds(data_waited - data_waited_before_);
    mine.compute_wait_ms = to_milliseconds(executor_.compute_waited());
    mine.end = parts_.reporter->asked_to_end() || time_is_over();
    faults_before_ = usage.page_faults;
    data_waited_before_ = data_waited;
    const SavePhase save = parts_.checkpointer ? parts_.checkpointer->phase() : SavePhase::kIdle;
    const StepLinks own = own_links();
    ++ends_reached_;
    StepFacts all = gather_facts(*parts_.collectives, parts_.stage.stages(), mine, save, own);
    links_ += all.links;
    return all;
}

void Trainer::report_step(int64_t step, const StepFacts& facts) {
    const config::RunConfig& config = *parts_.config;
    const int64_t forward_flops = parts_.stage.link != nullptr
                                      ? parts_.stage.forward_flops / parts_.stage.stages()
                                      : parts_.info->forward_flops();
    parts_.reporter->metrics(
        metrics_line({.step = step,
                      .loss = facts.loss,
                      .rewards = facts.has_rewards ? std::optional(facts.rewards) : std::nullopt,
                      .lr = lr_,
                      .gradient_norm = parts_.state->gradient_norm(),
                      .loss_scale = facts.loss_scale,
                      .skipped = facts.skipped,
                      .step_ms = facts.step_ms,
                      .samples = config.batch.train_rows,
                      .tokens_per_sample = parts_.tokens_per_sample,
                      .forward_flops = forward_flops * config.batch.accumulation_steps,
                      .peak_tflops = parts_.peak_tflops,
                      .rss_bytes = facts.rss_bytes,
                      .peak_rss_bytes = facts.peak_rss_bytes,
                      .page_faults = facts.page_faults,
                      .data_wait_ms = facts.data_wait_ms,
                      .lane_wait_ms = facts.compute_wait_ms,
                      .tier_peaks = tier_peaks_,
                      .kind_peaks = kind_peaks_,
                      .memory = parts_.account->memory(),
                      .links = traffic().all(),
                      .step_links = facts.links,
                      .disk = parts_.account->disk_traffic()}));
    show_step(step, facts);
}

void Trainer::show_step(int64_t step, const StepFacts& facts) {
    const bool has_tokens = parts_.tokens_per_sample > 0;
    const auto rows = static_cast<double>(parts_.config->batch.train_rows);
    line_.end_step(
        {.step = step,
         .loss = facts.loss,
         .lr = lr_,
         .step_ms = facts.step_ms,
         .units_per_step = has_tokens ? rows * static_cast<double>(parts_.tokens_per_sample) : rows,
         .unit = has_tokens ? "tok" : "samples",
         .rss = Bytes{facts.rss_bytes}});
}

void Trainer::report_progress(int64_t step, const StepFacts& facts) {
    const config::RunConfig& config = *parts_.config;
    const double elapsed = to_milliseconds(clock_.now() - train_begin_) / 1e3;
    const double left = elapsed / static_cast<double>(step - parts_.resumed.step) *
                        static_cast<double>(config.steps - step);
    const double step_ms = interval_ms_ / static_cast<double>(interval_steps_);
    const double rows_per_s = static_cast<double>(config.batch.train_rows) / (step_ms / 1e3);
    const std::string speed =
        parts_.tokens_per_sample > 0
            ? rate_text(rows_per_s * static_cast<double>(parts_.tokens_per_sample), "token")
            : rate_text(rows_per_s, "sample");
    const std::string held_out =
        eval_loss_is_new_ ? fmt::format("  held-out {:.4f}", *eval_loss_) : "";
    parts_.reporter->progress(
        // The last fields are left out where the terminal is narrow.
        fmt::format("step {}/{}  loss {:.4f}{}  left {}  {}  {:.1f} ms/step  lr {:.3g}  {}", step,
                    config.steps, facts.loss, held_out, time_left_text(left), speed, step_ms, lr_,
                    to_text(Bytes{facts.rss_bytes})));
    if (config.wall_clock_breakdown)
        log_info("train", "step {}: {}; a step {:.1f} ms; means of {} of rank 0", step,
                 breakdown_.take(), step_ms, counted(interval_steps_, "step"));
    eval_loss_is_new_ = false;
    interval_ms_ = 0;
    interval_steps_ = 0;
}

std::optional<double> Trainer::evaluate(int64_t step) {
    if (parts_.evaluator == nullptr) return std::nullopt;
    evaluating_ = true;
    line_.begin_other("evaluating");
    parts_.state->meet();
    parts_.state->settle();
    const EvalShare share = parts_.evaluator->run([this](double done) { line_.do_other(done); });
    double sums[6] = {share.loss_sum,       share.weight,           share.samples,
                      share.rewards.chosen, share.rewards.rejected, share.rewards.accuracy};
    parts_.collectives->sum_ordered(sums);
    evaluating_ = false;
    eval_cut_short_ = share.cut_short;
    if (share.cut_short) return std::nullopt;
    if (sums[1] == 0)
        fail(ExitCode::kInput,
             "held-out data: no target counts (all are -100), so there is no held-out loss");
    eval_loss_ = sums[0] / sums[1];
    if (!std::isfinite(*eval_loss_))
        fail(ExitCode::kDiverged,
             "the held-out loss at step {} is {}: training has diverged; lower the learning rate, "
             "or look at the held-out data",
             step, *eval_loss_);
    if (!best_eval_ || *eval_loss_ < best_eval_->loss) best_eval_ = EvalPoint{step, *eval_loss_};
    eval_loss_is_new_ = true;
    if (is_first_rank()) {
        JsonWriter json;
        json.begin_object().field("step", step).field("eval_loss", *eval_loss_);
        json.field("eval_samples", static_cast<int64_t>(sums[2]));
        if (parts_.config->loss.is_preference())
            add_rewards(json, "eval_", {sums[3] / sums[2], sums[4] / sums[2], sums[5] / sums[2]});
        json.end_object();
        parts_.reporter->metrics(json.text());
        parts_.reporter->progress(fmt::format("step {}: held-out loss {:.4f} over {:.0f} samples",
                                              step, *eval_loss_, sums[2]));
    }
    // The time of an evaluation belongs to no step.
    last_step_end_ = clock_.now();
    return eval_loss_;
}

}  // namespace dslaunch::runtime
