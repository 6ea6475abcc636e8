#include "job/setup/job_setup.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "config/read/train_config.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lower/index_limits.h"
#include "graph/lower/precision.h"
#include "graph/measure/measure.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/stored_rates.h"
#include "plan/step/device_plan.h"
#include "plan/step/plan_check.h"
#include "plan/step/stage_model.h"
#include "runtime/comm/collectives.h"
#include "storage/files/zip_archive.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {

namespace {

constexpr const char* kConfigName = "ds_config.json";

std::string folder_of(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

// The config and the folder where its relative paths start.
struct FoundConfig {
    config::TrainConfig config;
    std::string origin;
    std::string folder;
};

FoundConfig find_config(const JobArguments& arguments) {
    if (!arguments.config_path.empty())
        return {config::load_config(arguments.config_path), arguments.config_path,
                folder_of(arguments.config_path)};
    const std::string beside = folder_of(arguments.model_path) + "/" + kConfigName;
    const storage::ZipArchive archive(arguments.model_path);
    if (const auto text = archive.extra(kConfigName)) {
        const std::string name = arguments.model_path + ":" + kConfigName;
        return {config::parse_config(*text, name), name, folder_of(arguments.model_path)};
    }
    if (::access(beside.c_str(), F_OK) == 0)
        return {config::load_config(beside), beside, folder_of(beside)};
    return {config::empty_config(), "defaults", "."};
}

// A relative path of a config starts at the config's folder (the archive's for a packed one); one
// that is not there but in the working directory is taken from there, as a flag's is.
void place_path(std::string& path, const std::string& folder) {
    if (path.empty() || path.front() == '/') return;
    const std::string beside = folder + "/" + path;
    if (::access(beside.c_str(), F_OK) == 0) path = beside;
}

graph::LowerOptions lower_options(const config::RunConfig& config, c10::Device device) {
    graph::LowerOptions options;
    options.loss = config.loss;
    options.device = device;
    options.compute_dtype = graph::scalar_type_of(config.precision.compute);
    return options;
}

void check_indices(const JobSetup& setup) {
    for (const graph::ArgumentLimit& limit :
         graph::argument_limits(setup.segmented->lowered(), *setup.model)) {
        if (setup.data->train.tokens_per_sample() > 0) {
            setup.data->check_vocabulary(limit.rows);
        } else {
            setup.data->check_indices(limit.argument,
                                      {limit.rows, std::nullopt, "row of " + limit.table});
        }
    }
}

std::vector<c10::IValue> token_zeros(const JobSetup& setup) {
    const config::BatchConfig& batch = setup.config().batch;
    const at::Tensor tokens = at::zeros({batch.micro_rows, setup.config().data.context}, at::kLong);
    return std::vector<c10::IValue>(setup.segmented->arguments().size(), tokens);
}

runtime::DataRequest data_request(const JobSetup& setup) {
    return {setup.config().data, setup.config().loss, setup.segmented->arguments(),
            setup.segmented->argument_types()};
}

// Opens the data, checks what can be checked before the model runs, and returns a first micro
// batch.
std::vector<c10::IValue> open_and_check_data(JobSetup& setup, const runtime::Topology& place) {
    setup.data = runtime::open_data(data_request(setup));
    // One rank of a host reads the files whole.
    if (place.local_rank == 0) check_indices(setup);
    return first_rows(setup);
}

void check_labels(const JobSetup& setup, int64_t classes) {
    if (classes > 0) setup.data->check_labels(data_request(setup), classes);
}

// A loss refuses labels out of range in words of its own. With class 0 everywhere the model runs on
// any labels and shows how many classes there are, so that the check can name the bad one.
void blame_labels(const JobSetup& setup, std::vector<c10::IValue> batch) {
    batch.back() = at::zeros_like(batch.back().toTensor());
    int64_t classes = 0;
    try {
        classes = graph::measure(*setup.segmented,
                                 graph::on_device(std::move(batch), graph::device_of(*setup.model)))
                      .loss_classes;
    } catch (const Error&) {
        return;  // it is not the labels
    }
    check_labels(setup, classes);
}

// Runs BATCH through the model: what the plan is made from.
plan::ModelInfo measure_batch(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                              const runtime::Topology& place) {
    const bool has_labels = setup.data && place.local_rank == 0 &&
                            setup.config().loss.kind == config::LossKind::kCrossEntropy;
    plan::ModelInfo info;
    try {
        info = graph::measure(*setup.segmented, batch,
                              splits_backward(setup.config().pipeline.schedule));
    } catch (const Error& error) {
        if (has_labels) blame_labels(setup, batch);
        fail(error.code(), "{}: the first batch does not pass through the model: {}",
             setup.data ? printable(setup.data->train.path()) : "assumed tokens", error.what());
    }
    if (has_labels) check_labels(setup, info.loss_classes);
    return info;
}

// Labels can only be looked at where classes are whole: before the graph is shared.
void check_whole(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                 const runtime::Topology& place) {
    const bool has_labels = setup.data && setup.data->train.tokens_per_sample() == 0 &&
                            setup.config().loss.kind == config::LossKind::kCrossEntropy;
    if (has_labels && place.local_rank == 0) static_cast<void>(measure_batch(setup, batch, place));
}

void set_place(plan::StepPlanOptions& options, const runtime::Topology& place) {
    options.rank = place.rank();
    options.world_size = place.world_size();
    options.local_rank = place.local_rank;
    options.local_world_size = place.local_world_size();
    options.node_sizes = place.node_sizes;
}

plan::FlatLayoutOptions layout_options(const config::RunConfig& config, bool on_gpu) {
    plan::FlatLayoutOptions options;
    options.bucket_numel_max = config.zero.reduce_bucket_numel;
    options.frozen = !on_gpu;
    if (config.zero.stage == 3) {
        options.persistent_numel_max = config.zero.persistent_parameter_numel;
        options.persistent_total_numel_max = config.zero.persistent_numel_max;
    }
    return options;
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
    offload.ratio = config.optimizer_ratio;
    offload.adaptive = config.adaptive;
    for (size_t k = 0; k < offload.packings.size(); ++k)
        offload.packings[k] =
            packing_of(config.moments, zero::ShardOptimizer::is_square(run.optimizer, k));
    offload.lossless = config.lossless;
    offload.parameter_numel_in_memory = config.parameters_in_memory_numel;
    return offload;
}

// Whether ZeRO shards within each host.
bool shards_on_host(const config::RunConfig& config, const runtime::Topology& place) {
    const int64_t ranks = config.zero.shard_ranks;
    if (ranks == 0 || ranks == place.world_size()) return false;
    const bool whole_hosts =
        std::ranges::all_of(place.node_sizes, [&](int size) { return size == ranks; });
    if (!whole_hosts)
        fail(ExitCode::kConfig,
             "zero_optimization.mics_shard_size: {}, but of the {} ranks that train the same "
             "parameters {} are on this host; shard groups are those of a host, equally many on "
             "each: give their number, or -1",
             ranks, place.world_size(), place.local_world_size());
    return true;
}

plan::StepPlanOptions plan_options(const config::RunConfig& config, const runtime::Topology& place,
                                   bool on_gpu) {
    plan::StepPlanOptions options;
    set_place(options, place);
    options.stage = static_cast<int>(config.zero.stage);
    options.shard_on_host = shards_on_host(config, place);
    options.parameter_bytes = dtype_bytes(config.precision.compute);
    options.master = config.precision.compute != DType::kF32;
    options.check_overflow = config.precision.skip_nonfinite_steps;
    options.gather = {config.zero.live_numel_max, config.zero.prefetch_bucket_numel,
                      config.zero.reuse_distance_numel_max};
    options.offload = offload_plan(config);
    options.accumulation_steps = config.batch.accumulation_steps;
    options.recompute_groups = config.recompute_groups;
    options.clip = config.gradient_clipping > 0;
    options.reduce_each_micro_step = config.reduce == config::ReduceWhen::kMicroStep;
    options.optimizer_states = zero::ShardOptimizer::states_per_parameter(config.optimizer);
    // Summing while updating reads every rank's gradients once; with more ranks a reduction by
    // parts reads less.
    constexpr int kFusedRanksMax = 2;
    const bool accumulates = options.reduce_each_micro_step && options.accumulation_steps > 1;
    options.fused_update = !on_gpu && options.stage == 0 && !options.norm_first() && !accumulates &&
                           place.node_count() == 1 && place.local_world_size() <= kFusedRanksMax;
    return options;
}

}  // namespace

JobSetup set_up_job(const JobArguments& arguments, const runtime::Topology& place) {
    JobSetup setup;
    FoundConfig found = find_config(arguments);
    setup.config_origin = found.origin;
    for (const std::string& assignment : arguments.overrides)
        config::apply_override(found.config, assignment);
    setup.resolved =
        config::resolve(found.config, {place.world_size(), /*needs_steps=*/!arguments.plan_only});
    config::require_valid(setup.resolved);
    if (arguments.plan_meshes && setup.config().zero.shard_ranks > 0)
        fail(ExitCode::kUsage,
             "the config shards over the ranks of a host (zero_optimization.mics_shard_size), and "
             "meshes are looked at whose ranks shard over all that train the same parameters: "
             "leave it out with --set zero_optimization.mics_shard_size=-1");
    config::RunConfig& placed = setup.resolved.config;
    place_path(placed.data.train_path, found.folder);
    place_path(placed.data.eval_path, found.folder);
    for (std::string& folder : placed.offload.nvme_paths) place_path(folder, found.folder);

    const c10::Device device =
        arguments.open_device ? arguments.open_device(setup.config()) : c10::Device(c10::kCPU);
    setup.on_gpu = device.is_cuda() ||
                   (arguments.plan_only && setup.config().device == config::DeviceChoice::kCuda);

    setup.model = std::make_unique<graph::Model>(graph::Model::load(arguments.model_path));
    graph::move_to_device(*setup.model, device);
    setup.segmented = std::make_unique<graph::SegmentedModel>(graph::SegmentedModel::make(
        *setup.model, lower_options(setup.config(), device), arguments.segments));
    const config::RunConfig& config = setup.config();
    // A plan needs shapes, not samples: tokens of the context's length will do where no data are
    // named.
    const bool assume_tokens =
        arguments.plan_only && config.data.train_path.empty() && config.data.context > 0;
    const std::vector<c10::IValue> batch =
        assume_tokens ? token_zeros(setup) : open_and_check_data(setup, place);
    check_pipeline(setup);
    check_sharing(setup);
    setup.place = place_in_stages(config, place);
    setup.sharing.place = place_in_group(config, place, setup.place);
    const WithoutGroup alone(setup.sharing.place);
    if (setup.sharing.place.size > 1) {
        check_whole(setup, batch, place);
        share_job(setup, arguments, batch, place.rank() == 0);
    }
    setup.model_info = measure_batch(setup, graph::on_device(batch, device), place);
    lay_out_job(setup, place);
    if (setup.place.is_pipeline()) check_shared_buffers(setup, batch);
    let_go_of_other_stages(setup);
    if (const std::string why = why_no_plan(setup); !why.empty())
        fail(ExitCode::kConfig, "{}", why);
    setup.plan = make_plan(setup, setup.place.of_stage);
    return setup;
}

std::vector<c10::IValue> first_rows(const JobSetup& setup) {
    const runtime::DataSource& train = setup.data->train;
    std::vector<int64_t> samples;
    for (int64_t row = 0; row < setup.config().batch.micro_rows; ++row)
        samples.push_back(row % train.rows());
    return train.batch(samples);
}

void lay_out_job(JobSetup& setup, const runtime::Topology& place) {
    const config::RunConfig& config = setup.config();
    setup.place = place_in_stages(config, place);
    setup.sharing.place = place_in_group(config, place, setup.place);
    setup.plan_options = plan_options(config, setup.place.of_stage, setup.on_gpu);
    choose_segments(setup);
    check_ties(setup, place);
    setup.info = plan::stage_model(setup.model_info, setup.own_segments());
    plan::FlatLayoutOptions options = layout_options(config, setup.on_gpu);
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

plan::StepPlan make_plan(const JobSetup& setup, const runtime::Topology& place) {
    plan::StepPlanOptions options = setup.plan_options;
    set_place(options, place);
    plan::StepPlan plan = plan::make_step_plan(setup.info, setup.layout, options);
    if (setup.place.is_pipeline()) count_sent_by_stage(setup, plan);
    return setup.on_gpu ? plan::make_device_plan(std::move(plan)) : plan;
}

std::vector<plan::StepPlan> make_host_plans(const JobSetup& setup) {
    std::vector<plan::StepPlan> plans;
    for (int local = 0; local < setup.place.of_stage.local_world_size(); ++local) {
        runtime::Topology rank = setup.place.of_stage;
        rank.local_rank = local;
        plans.push_back(make_plan(setup, rank));
    }
    return plans;
}

// Ranks whose plans differ would wait for each other for ever.
void compare_plans(runtime::Collectives& collectives, const plan::StepPlan& plan) {
    const std::vector<std::string> hashes =
        collectives.all_gather(fmt::format("{:016x}", plan.hash()));
    for (size_t rank = 1; rank < hashes.size(); ++rank)
        if (hashes[rank] != hashes[0])
            fail(ExitCode::kDiverged,
                 "rank {} has another step plan ({}) than rank 0 ({}): model, config or dsworker "
                 "differ between the hosts",
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

// Stage by stage, equally many of each: of a host's ranks, or where stages lie otherwise on their
// hosts, of one.
std::vector<plan::StepPlan> plans_of_pipeline(const JobSetup& setup,
                                              const runtime::Topology& place) {
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
            std::ranges::move(make_host_plans(stage), std::back_inserter(plans));
        } else {
            plans.push_back(std::move(stage.plan));
        }
    }
    return plans;
}

}  // namespace

void check_host_plans(const JobSetup& setup, const runtime::Topology& place) {
    const std::vector<std::string> problems =
        setup.place.is_pipeline()
            ? plan::check_plans(plans_of_pipeline(setup, place), setup.place.stages)
            : plan::check_plans(make_host_plans(setup));
    DSL_CHECK(problems.empty(), "the plans of this host's ranks do not fit together: {}",
              problems.front());
}

}  // namespace dslaunch::job
