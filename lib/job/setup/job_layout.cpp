#include "job/setup/job_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "job/files/stored_rates.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/job_wire.h"
#include "job/setup/step_kinds.h"
#include "plan/pipeline/stage_model.h"
#include "plan/step/plan_check.h"
#include "runtime/comm/collectives.h"
#include "runtime/schedules/exchange_schedule.h"
#include "zero/states/shard_optimizer.h"
#include "zero/states/tensor_states.h"

namespace dslaunch::job {

namespace {

// Sets the place of RANKS in OPTIONS. Ranks share the memory of their host, but not the memory of
// GPUs.
void set_place(plan::StepPlanOptions& options, const runtime::Topology& ranks, bool on_gpu) {
    const runtime::Topology place = on_gpu ? ranks.each_alone() : ranks;
    options.rank = place.rank();
    options.world_size = place.world_size();
    options.local_rank = place.local_rank;
    options.local_world_size = place.local_world_size();
    options.node_sizes = place.node_sizes;
    options.on_device = on_gpu;
}

StatePacking packing_of(config::MomentFormat format, bool square) {
    if (format == config::MomentFormat::kFp32) return StatePacking::kNone;
    if (format == config::MomentFormat::kBf16) return StatePacking::kBf16;
    return square ? StatePacking::kUint8Root : StatePacking::kInt8;
}

plan::OffloadPlan offload_plan(const config::RunConfig& run) {
    const config::OffloadConfig& config = run.offload;
    plan::OffloadPlan offload;
    offload.states = config.optimizer == config::OffloadDevice::kNvme;
    offload.parameters = config.parameters == config::OffloadDevice::kNvme;
    offload.chunk_numel = config.chunk_numel;
    offload.chunk_numel_max = config.sub_group_numel;
    offload.swap_buffers = config.optimizer_buffer_count;
    offload.eviction = config.eviction;
    offload.ratio = config.optimizer_ratio;
    offload.adaptive = config.adaptive;
    offload.packed_in_memory = run.states != config::MomentFormat::kFp32;
    const config::MomentFormat moments = offload.packed_in_memory ? run.states : config.moments;
    for (size_t k = 0; k < offload.packings.size(); ++k)
        offload.packings[k] =
            packing_of(moments, zero::ShardOptimizer::is_square(run.optimizer, k));
    offload.lossless = config.lossless;
    offload.parameter_numel_in_memory = config.parameters_in_memory_numel;
    return offload;
}

// Returns the value for StepPlanOptions::shard_group. On CPUs, the ranks of a group read each
// other's memory, so a group is a whole host. On GPUs, ranks send their shards to each other.
int shard_group(const config::RunConfig& config, const runtime::Topology& place, bool on_gpu) {
    // With a compressing optimizer, hosts exchange complete states, so each host must have all
    // states.
    const bool by_hosts =
        config.optimizer.compresses() && config.zero.stage > 0 && place.node_count() > 1;
    const int64_t ranks = by_hosts && config.zero.shard_ranks == 0 ? place.local_world_size()
                                                                   : config.zero.shard_ranks;
    if (by_hosts && !std::ranges::all_of(place.node_sizes, [&](int size) { return size == ranks; }))
        fail(ExitCode::kConfig,
             "optimizer.type: at ZeRO stage {} the ranks of each host shard the states that hosts "
             "exchange, so all hosts need the same number of ranks (set mics_shard_size to that "
             "number, or to -1); stage 0 works with any numbers",
             config.zero.stage);
    if (ranks == 0 || ranks == place.world_size()) return 0;
    if (on_gpu && place.world_size() % ranks == 0) return static_cast<int>(ranks);
    if (on_gpu)
        fail(ExitCode::kConfig,
             "zero_optimization.mics_shard_size: {} does not divide the {} ranks that train the "
             "same parameters: give a divisor of {}, or -1",
             ranks, place.world_size(), place.world_size());
    const bool whole_hosts =
        std::ranges::all_of(place.node_sizes, [&](int size) { return size == ranks; });
    if (!whole_hosts)
        fail(ExitCode::kConfig,
             "zero_optimization.mics_shard_size: {} is not possible: of the {} ranks that train "
             "the same parameters, {} are on this host. The ranks of each host form one shard "
             "group, and all hosts need the same number of ranks: give the number of ranks of one "
             "host, or -1",
             ranks, place.world_size(), place.local_world_size());
    return static_cast<int>(ranks);
}

// Returns true if the update itself should sum the gradients. In such a fused update, each rank
// reads the gradients of every rank. With up to two ranks, a fused update reads less memory than a
// separate reduction. With more ranks, the reduction reads less, because each rank sums only a part
// of the gradients.
bool fuses(const plan::StepPlanOptions& options) {
    constexpr int kFusedRanksMax = 2;
    const bool accumulates = options.reduce_each_micro_step && options.accumulation_steps > 1;
    return !options.on_device && options.stage == 0 && !options.norm_first() && !accumulates &&
           options.sums_on_host() && options.local_world_size <= kFusedRanksMax;
}

// Returns the value for StepPlanOptions::tensor_states.
std::vector<int64_t> tensor_states(const config::OptimizerConfig& optimizer,
                                   const plan::ModelInfo& model) {
    std::vector<int64_t> states;
    if (zero::tensor_state_names(optimizer).empty()) return states;
    for (const plan::ParameterInfo& parameter : model.parameters) {
        const std::vector<int64_t> numel = zero::tensor_state_numel(optimizer, parameter.shape);
        states.push_back(
            parameter.trainable ? std::accumulate(numel.begin(), numel.end(), int64_t{0}) : 0);
    }
    return states;
}

plan::StepPlanOptions plan_options(const config::RunConfig& config, const runtime::Topology& place,
                                   bool on_gpu) {
    plan::StepPlanOptions options;
    set_place(options, place, on_gpu);
    options.stage = static_cast<int>(config.zero.stage);
    options.shard_group = shard_group(config, place, on_gpu);
    options.parameter_bytes = dtype_bytes(config.precision.weights());
    options.master = config.precision.has_masters();
    options.check_overflow = config.precision.skip_nonfinite_steps;
    options.gather = {config.zero.live_numel_max, config.zero.prefetch_bucket_numel,
                      config.zero.reuse_distance_numel_max};
    options.offload = offload_plan(config);
    options.wire = wire_of(config, place, on_gpu);
    options.accumulation_steps = config.batch.accumulation_steps;
    options.recompute_groups = config.recompute_groups;
    options.clip = config.gradient_clipping > 0;
    options.reduce_each_micro_step = config.reduce == config::ReduceWhen::kMicroStep;
    options.whole_tensors = config.optimizer.needs_whole_tensors();
    options.optimizer_states = zero::ShardOptimizer::states_per_parameter(config.optimizer);
    if (!on_gpu)
        options.compression = runtime::ExchangeSchedule::room(config.optimizer, place.node_count());
    options.lag = runtime::lag_of(config.lagging, 1);
    options.fused_update = fuses(options);
    return options;
}

}  // namespace

plan::FlatLayoutOptions layout_options(const config::RunConfig& config, int64_t stage) {
    plan::FlatLayoutOptions options;
    options.bucket_numel_max = config.zero.reduce_bucket_numel;
    options.frozen = true;
    if (stage == 3) {
        options.persistent_numel_max = config.zero.persistent_parameter_numel;
        options.persistent_total_numel_max = config.zero.persistent_numel_max;
    }
    return options;
}

void lay_out_job(JobSetup& setup, const runtime::Topology& place) {
    const config::RunConfig& config = setup.config();
    setup.place = place_in_stages(config, place);
    setup.sharing.place = place_in_group(config, place, setup.place);
    setup.plan_options = plan_options(config, setup.place.of_stage, setup.on_gpu);
    setup.plan_options.tensor_states = tensor_states(config.optimizer, setup.model_info);
    choose_segments(setup);
    check_ties(setup, place);
    setup.info = plan::stage_model(setup.model_info, setup.own_segments());
    plan::FlatLayoutOptions options = layout_options(config, config.zero.stage);
    if (setup.place.is_pipeline()) {
        setup.plan_options.stage_work = work_of_stage(setup);
        setup.far_ranks = far_ranks(setup, place);
        setup.plan_options.recompute_groups = recompute_groups_of_stage(setup);
    }
    for (const plan::TiedParameter& tie : setup.plan_options.stage_work.ties)
        options.tied.push_back(tie.parameter);
    options.part_begins = plan::part_begins(setup.plan_options.stage_work);
    setup.layout = plan::make_flat_layout(setup.info, options);
    setup.shard = config.zero.shard;
    if (config.zero.shard_auto && config.zero.stage > 0) {
        setup.shard_costs = plan::shard_costs(setup.info, setup.layout, setup.plan_options);
        setup.shard = plan::choose_shard(setup.shard_costs);
    }
    setup.partition = std::make_unique<plan::Partition>(plan::make_partition(
        setup.layout, setup.info, setup.shard, setup.plan_options.shard_ranks()));
    setup.plan_options.partition = setup.partition.get();
}

std::string why_no_plan(const JobSetup& setup) {
    return plan::too_many_chunks(setup.layout, setup.partition.get(), setup.plan_options.offload);
}

std::string shard_text(const JobSetup& setup) {
    if (setup.shard_costs.empty()) return "";
    const config::OffloadConfig& offload = setup.config().offload;
    return plan::shard_reason(setup.shard_costs, setup.shard, stored_rates(offload),
                              offload.nvme_paths.empty() ? "" : offload.nvme_paths.front());
}

plan::StepPlan make_plan(const JobSetup& setup, const runtime::Topology& place,
                         const plan::StepKind& kind) {
    plan::StepPlanOptions options = setup.plan_options;
    set_place(options, place, setup.on_gpu);
    options.exchange = kind.exchange;
    if (kind.lag.on) options.lag = kind.lag;
    options.fused_update = fuses(options);
    plan::StepPlan plan = plan::make_step_plan(setup.info, setup.layout, options);
    if (setup.place.is_pipeline()) count_sent_by_stage(setup, plan);
    return plan;
}

std::vector<plan::StepPlan> make_host_plans(const JobSetup& setup, const plan::StepKind& kind) {
    std::vector<plan::StepPlan> plans;
    for (int local = 0; local < setup.place.of_stage.local_world_size(); ++local) {
        runtime::Topology rank = setup.place.of_stage;
        rank.local_rank = local;
        plans.push_back(make_plan(setup, rank, kind));
    }
    return plans;
}

// Fails if the plans of the ranks differ: such ranks would wait for each other for ever.
void compare_plans(runtime::Collectives& collectives, const plan::StepPlan& plan) {
    const std::vector<std::string> hashes =
        collectives.all_gather(fmt::format("{:016x}", plan.hash()));
    for (size_t rank = 1; rank < hashes.size(); ++rank)
        if (hashes[rank] != hashes[0])
            fail(ExitCode::kDiverged,
                 "the step plan of rank {} ({}) differs from the step plan of rank 0 ({}): model, "
                 "config or dsworker differ between the hosts",
                 rank, hashes[rank], hashes[0]);
}

JobSetup seen_from(const JobSetup& setup, const runtime::Topology& place) {
    JobSetup other;
    other.resolved.config = setup.config();
    other.on_gpu = setup.on_gpu;
    other.model_info = setup.model_info;
    other.sharing.of_first = setup.sharing.of_first;
    lay_out_job(other, place);
    other.plan = make_plan(other, other.place.of_stage);
    return other;
}

namespace {

// Returns the plans of all ranks on a host, in the order of their stages. If the stages have
// different numbers of ranks on a host, returns only one plan for each stage.
std::vector<plan::StepPlan> plans_of_pipeline(const JobSetup& setup, const runtime::Topology& place,
                                              const plan::StepKind& kind) {
    std::vector<JobSetup> stages;
    bool alike = true;
    for (const int rank : setup.place.pipeline) {
        stages.push_back(seen_from(setup, runtime::Topology::of_rank(place.node_sizes, rank)));
        alike = alike && stages.back().place.of_stage.local_world_size() ==
                             setup.place.of_stage.local_world_size();
    }
    std::vector<plan::StepPlan> plans;
    for (JobSetup& stage : stages) {
        if (alike) {
            std::ranges::move(make_host_plans(stage, kind), std::back_inserter(plans));
        } else {
            plans.push_back(make_plan(stage, stage.place.of_stage, kind));
        }
    }
    return plans;
}

}  // namespace

void check_host_plans(const JobSetup& setup, const runtime::Topology& place) {
    for (const plan::StepKind& kind : all_step_kinds(setup)) {
        const std::vector<std::string> problems =
            setup.place.is_pipeline()
                ? plan::check_plans(plans_of_pipeline(setup, place, kind), setup.place.stages)
                : plan::check_plans(make_host_plans(setup, kind));
        DSL_CHECK(problems.empty(), "the plans of this host's ranks do not fit together: {}",
                  problems.front());
    }
}

}  // namespace dslaunch::job
