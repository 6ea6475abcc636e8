#include "job/run/training_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "graph/archive/kept_layers.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/target_count.h"
#include "job/run/describe_run.h"
#include "job/run/packing_choice.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/lower_options.h"
#include "job/setup/set_up_job.h"
#include "job/setup/written_parameters.h"
#include "launch/machine/machine_name.h"
#include "plan/step/recompute_groups.h"
#include "runtime/save/save_weights.h"
#include "storage/export/weight_export.h"
#include "storage/huggingface/model_folder.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {

namespace {

// The longest wait for the claim. A rank that has lost its launcher ends earlier than this
// (launch::kLeaseMax).
constexpr std::chrono::milliseconds kClaimWaitMax{150'000};

// Throws Error{kDiverged} if no step of the run changed the weights. But if the run was asked to
// end, it does not throw, because the run can be resumed and may then find a suitable loss scale.
void require_updates(const runtime::TrainResult& result) {
    const bool none_ever = result.steps > 0 && result.updates == 0;
    const bool none_now = result.new_steps > 0 && result.new_updates == 0;
    if (result.asked_to_end || (!none_ever && !none_now)) return;
    fail(ExitCode::kDiverged,
         "none of the {} steps changed the model: all were skipped because their gradients were "
         "not finite (the warning of each skip names the parameter and the loss scale). If only "
         "the loss scale was too large, train more steps or lower fp16.initial_scale_power; else "
         "lower optimizer.params.lr, or use bf16. No weights are written",
         none_ever ? result.steps : result.new_steps);
}

}  // namespace

TrainingRank::TrainingRank(TrainingOptions options, launch::WorkerEnvironment environment,
                           runtime::Reporter& reporter)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      reporter_(reporter),
      place_(runtime::Topology::of_rank(environment_.node_sizes, environment_.rank)) {}

void TrainingRank::set_up() {
    options_.job.open_device = [this](const config::RunConfig& config) {
        gpu_ = runtime::open_rank_device(config, environment_, options_.device_plugin);
        if (gpu_.backend && first()) log_info("train", "GPU: {}", gpu_.backend->describe());
        return gpu_.device;
    };
    setup_ = set_up_job(options_.job, place_);
    if (setup_.own_ranks().local_rank == 0) check_host_plans(setup_, place_);
    if (place_.local_rank == 0 || setup_.on_gpu)
        room_.check_host(setup_, place_, !options_.output.empty(), gpu_.backend.get());
    if (first() && !options_.output.empty())
        runtime::check_room_for_output(
            setup_.whole_model(),
            {options_.output, setup_.info.trainable_numel(),
             std::ssize(zero::ShardOptimizer::state_names(config().optimizer)),
             !setup_.segmented->lowered().shrinks.empty()});
}

void TrainingRank::reserve() {
    states_.emplace(setup_, environment_, gpu_, time_limit());
}

void TrainingRank::meet() {
    tell("waiting for the other ranks");
    runtime::ArenaLayout arena(setup_.own_ranks().local_world_size());
    states_->add_slices(arena);
    comms_.open(environment_, setup_, std::move(arena), time_limit());
    compare_plans(*comms_.own().collectives, setup_.plan);
    room_.agree(comms_.job());
    choose_packing(setup_, comms_.of_job());
}

void TrainingRank::resume() {
    const bool restarted = environment_.restart_count > 0;
    SavingOptions saving;
    saving.output = options_.output;
    saving.resume = options_.resume;
    saving.restarted = restarted || options_.begins_if_new;
    saving.model_path = options_.job.model_path;
    saving.owner = describe_owner();
    saving.launch = environment_.launch_id.empty() ? environment_.job_id : environment_.launch_id;
    saving.new_data = options_.new_data;
    saving.is_fed = options_.job.fed_data != nullptr;
    if (restarted) saving.claim_wait_max = claim_wait_max();
    saving_.emplace(setup_, comms_, std::move(saving));
    tell("reading the checkpoint");
    saving_->resume();
}

void TrainingRank::place_weights(std::optional<JobRates> rates) {
    buffers_.emplace(*setup_.model, *comms_.own().collectives);
    if (saving_->saved() == nullptr) buffers_->broadcast();
    if (first() && own_buffers()) log_info("train", "{}", own_buffers_text(setup_));
    tell("placing the weights");
    state_ = states_->make(comms_, saving_->saved(), options_.threads);
    if (first()) states_->describe_offload();
    resumed_ = saving_->training();
    saving_->begin(*state_, *buffers_, own_buffers());
    steps_.emplace(setup_, place_, JobSteps::Parts{*comms_.own().collectives, *buffers_, *state_},
                   StepsOptions{options_.output, std::move(rates)});
}

std::string TrainingRank::describe_owner() const {
    return fmt::format("job {}, attempt {}, rank {} on host {}, pid {}",
                       environment_.job_id.empty() ? "without a name" : environment_.job_id,
                       environment_.restart_count, environment_.rank, launch::machine_name(),
                       ::getpid());
}

std::chrono::milliseconds TrainingRank::time_limit() const {
    return std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1e3));
}

// Returns the longest time to wait for the right to save. It is shorter than the time limit after
// which the other ranks would report a hang.
std::chrono::milliseconds TrainingRank::claim_wait_max() const {
    return std::min(kClaimWaitMax,
                    std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 800)));
}

WrittenWeights TrainingRank::write_weights(const runtime::TrainResult& result) {
    require_updates(result);
    const WrittenWeights written =
        saving_->write_weights(*state_, *buffers_, {result.steps, result.updates});
    // With the config next to the weights, the folder is a Hugging Face folder too.
    const std::string& model = options_.job.model_path;
    if (first() && written.any && !config().lora.on() && storage::model_folder_of(model)) {
        storage::copy_model_config(model, options_.output);
        if (const auto layers = setup_.kept_layers(); !layers.empty())
            graph::write_fewer_layers(options_.output, std::ssize(layers));
    }
    return written;
}

bool TrainingRank::all_leave() const {
    double asked[1] = {reporter_.asked_to_end() ? 1.0 : 0.0};
    comms_.job().sum_ordered(asked);
    return asked[0] > 0;
}

void TrainingRank::leave_groups() const {
    if (gpu_.backend) gpu_.backend->leave();
}

void TrainingRank::poison(const std::string& why) const {
    comms_.poison(why);
    if (gpu_.backend) gpu_.backend->abort();
}

// Returns true if the ranks' buffers take different values while they train.
bool TrainingRank::own_buffers() const {
    return buffers_->drift() && environment_.world_size > 1 && !config().broadcast_buffers &&
           !config().average_buffers;
}

runtime::SegmentRunner TrainingRank::make_segments(runtime::SegmentRunner::TakeBatch take) const {
    const plan::StepPlanOptions& plan = setup_.plan_options;
    return {*setup_.segmented,
            setup_.info,
            plan::make_recompute_groups(setup_.info, plan.recompute_groups, plan.stage_work.parts),
            std::move(take),
            {config().seed, config().batch.accumulation_steps, setup_.data_rank(),
             static_cast<int>(config().batch.data_parallel_size), gpu_.device,
             /*read_losses_late=*/!gpu_.device.is_cpu(),
             /*stop_on_nonfinite_loss=*/!config().precision.skip_nonfinite_steps, plan.stage_work,
             setup_.sharing.position_ranks()}};
}

runtime::EvaluatorParts TrainingRank::evaluator_parts() {
    runtime::EvaluatorParts parts;
    parts.model = setup_.model.get();
    parts.lowering = lower_options(config(), gpu_.device, /*training=*/false);
    parts.config = &config();
    parts.buffers = &*buffers_;
    parts.state = state_.get();
    parts.writable = state_.get();
    parts.is_written_here = written_here(setup_);
    parts.device = gpu_.device;
    parts.rank = setup_.data_rank();
    parts.counts = setup_.sharing.place.index == 0;
    parts.leaves = [this] { return all_leave(); };
    parts.stages = {comms_.stages(), stage_of_parts(setup_), stages_of_parameters(setup_),
                    stages_of_buffers(setup_), options_.job.segments};
    parts.segmented = std::move(setup_.sharing.held_out);
    return parts;
}

runtime::TokenWriterParts TrainingRank::writer_parts() {
    runtime::TokenWriterParts parts;
    parts.model = setup_.model.get();
    parts.lowering = lower_options(config(), gpu_.device, /*training=*/false);
    parts.config = &config();
    parts.buffers = &*buffers_;
    parts.state = state_.get();
    parts.collectives = &comms_.job();
    parts.device = gpu_.device;
    parts.leaves = [this] { return all_leave(); };
    return parts;
}

// Returns true if micro batches may differ in the number of targets that count.
bool TrainingRank::targets_vary() const {
    const graph::TargetCount* const targets = setup_.segmented->lowered().targets.get();
    const DType tokens = config().data.token_dtype.value_or(DType::kU16);
    const bool has_sign = tokens == DType::kI32 || tokens == DType::kI64;
    return targets != nullptr &&
           targets->varies(setup_.data->train.tokens_per_sample() > 0 && !has_sign);
}

// Returns the peak rate of the processor or GPU. MFU is reported as a fraction of this peak. All
// ranks call it at the same time.
runtime::DevicePeak TrainingRank::peak() const {
    runtime::DevicePeak peak{gpu_.peak_tflops, "name"};
    if (config().peak_tflops > 0)
        peak = {config().peak_tflops, "stated"};
    else if (gpu_.device.is_cpu())
        peak = runtime::measure_cpu_peak(config().precision.compute);
    if (first() && peak.tflops > 0)
        log_detail("train", "mfu is relative to {:.4g} TFLOP/s, {}", peak.tflops,
                   peak.source == "name"     ? "the known peak of this GPU model"
                   : peak.source == "stated" ? "dslaunch.peak_tflops"
                                             : "measured on this processor");
    return peak;
}

runtime::TrainerParts TrainingRank::trainer_parts() {
    const plan::StageWork& work = setup_.plan_options.stage_work;
    runtime::TrainerParts parts;
    parts.config = &config();
    parts.steps.info = &setup_.info;
    parts.steps.plan = &setup_.plan;
    parts.steps.collectives = &comms_.job();
    parts.tells_planned = setup_.on_gpu || comms_.own().collectives->topology().local_rank == 0;
    parts.steps.groups = comms_.groups();
    if (states_->collectives_of_gpus() != nullptr)
        parts.steps.groups.push_back(states_->collectives_of_gpus());
    parts.steps.device = gpu_.backend.get();
    parts.steps.time_limit = time_limit();
    if (comms_.stages() != nullptr)
        parts.steps.stage = {comms_.stages(), comms_.far(), setup_.model_info.forward_flops(),
                             work.parts, plan::stages_of_buckets(setup_.layout, work.ties)};
    parts.steps.state = state_.get();
    parts.account = state_.get();
    parts.reporter = &reporter_;
    parts.checkpointer = saving_->checkpointer();
    parts.begin_steps = [this] { begin_steps(); };
    parts.between = &*steps_;
    parts.save_by = runtime::last_save_time(config().save.time_limit_s, start_);
    parts.tokens_per_sample = setup_.data->train.tokens_read();
    parts.targets_vary = targets_vary();
    parts.peak = peak();
    if (first() && config().flops_profiler.enabled) parts.profiled = setup_.segmented.get();
    parts.resumed = resumed_;
    return parts;
}

}  // namespace dslaunch::job
