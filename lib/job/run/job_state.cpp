#include "job/run/job_state.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "base/machine/files_of_process.h"
#include "graph/lower/device_rewrite.h"
#include "plan/pipeline/stage_model.h"
#include "runtime/comm/device_collectives.h"
#include "storage/disk/disk_facts.h"

namespace dslaunch::job {

JobState::JobState(const JobSetup& setup, const launch::WorkerEnvironment& environment,
                   const runtime::RankDevice& gpu, Duration time_limit)
    : setup_(setup),
      gpu_(gpu),
      rank_(environment.rank),
      time_limit_(time_limit),
      shards_(setup.layout, setup.partition.get(), setup.plan_options.stage,
              setup.on_gpu ? setup.own_ranks().each_alone() : setup.own_ranks(),
              setup.plan_options.offload.parameters, setup.plan_options.shard_group,
              setup.plan_options.whole_tensors) {
    const Bytes bytes =
        zero::StateStore::bytes_on_disk(setup.plan, setup.plan_options.chunk_format());
    if (bytes.value == 0) return;
    const config::OffloadConfig& config = setup.config().offload;
    const std::string job =
        environment.job_id.empty() ? fmt::format("alone-{}", ::getpid()) : environment.job_id;
    offload_.emplace(config, storage::SwapPlace{config.nvme_paths, job, environment.rank}, bytes);
    for (const std::string& path : offload_->paths()) add_file_of_process(path, true);
}

zero::ZeroPlace JobState::zero_place() const {
    return {
        &setup_.layout, setup_.partition.get(), &setup_.plan_options, &setup_.plan, &shards_, {}};
}

void JobState::add_slices(runtime::ArenaLayout& arena) {
    if (!gpu_.backend)
        slices_ =
            zero::ZeroState::add_slices(zero_place(), setup_.config().precision.weights(), arena);
}

// Opens the memory of a rank on a GPU, which no other rank can read, and the collectives between
// the GPUs.
void JobState::open_gpu_comm(runtime::Collectives& control) {
    runtime::ArenaLayout layout(1);
    slices_ =
        zero::ZeroState::add_slices(zero_place(), setup_.config().precision.weights(), layout);
    gpu_comm_.arena = std::make_unique<runtime::Arena>(
        runtime::Arena::on_device(std::move(layout), *gpu_.backend));
    runtime::HostGroupOptions alone;
    alone.ranks = {rank_};
    alone.time_limit = time_limit_;
    gpu_comm_.group = std::make_unique<runtime::HostGroup>(*gpu_comm_.arena, alone);
    gpu_comm_.collectives = runtime::make_device_collectives(
        {gpu_comm_.arena.get(), &control, gpu_.backend.get(), setup_.plan_options.shard_group},
        time_limit_);
}

std::unique_ptr<runtime::ParameterState> JobState::make(RankComms& comms,
                                                        runtime::SavedState* saved, int threads) {
    const config::RunConfig& config = setup_.config();
    const runtime::JobComm& own = comms.own();
    zero::ZeroPlace place = zero_place();
    if (gpu_.backend) {
        open_gpu_comm(*own.collectives);
        place.device = {gpu_.backend.get(), gpu_.device};
    } else {
        host_.emplace(threads);
        place.device = {&*host_, at::kCPU};
    }
    const runtime::JobComm& memory = gpu_.backend ? gpu_comm_ : own;
    return std::make_unique<zero::ZeroState>(
        *setup_.model, place, slices_, *memory.arena, *memory.group, *memory.collectives,
        zero::ZeroOptions{
            config.optimizer, config.gradient_clipping, config.precision.weights(),
            config.precision.skip_nonfinite_steps, saved,
            zero::PipelineScope{
                comms.is_divided() ? &comms.job() : nullptr,
                plan::counted_elsewhere(setup_.plan_options.stage_work.ties, setup_.place.stage)},
            comms.shares(), graph::has_control_flow(setup_.segmented->lowered()),
            setup_.update_rules, config.adds_ranks},
        offload_ ? &*offload_ : nullptr);
}

void JobState::describe_offload() const {
    if (!offload_) return;
    const std::vector<int64_t>& gathered = setup_.plan.gather_buffer_numel;
    log_info("offload",
             "states in {} chunks, with memory for {} chunks at once; file: {}; {} buffers for "
             "gathered parameters, {} elements in all",
             setup_.plan.chunks.turns.size(), setup_.plan.swap_buffers, offload_->describe(),
             gathered.size(), std::accumulate(gathered.begin(), gathered.end(), int64_t{0}));
}

void JobState::report_offload(runtime::Collectives& job, const runtime::StateAccount& state,
                              const std::string& placement, const runtime::DiskTraffic& before,
                              const runtime::TrainResult& result) const {
    if (!setup_.plan_options.offload.any()) return;
    // The traffic of a rank without offloaded values is zero.
    const runtime::DiskTraffic after = state.disk_traffic().value_or(runtime::DiskTraffic{});
    const std::vector<Bytes> of_ranks = runtime::gather_values(job, after.written - before.written);
    if (job.topology().rank() > 0) return;
    for (const std::string& clause : state.summary()) log_info("offload", "{}", clause);
    if (!placement.empty()) log_info("placement", "{}", placement);
    Bytes written;
    for (int local = 0; local < job.topology().local_world_size(); ++local)
        written += of_ranks[local];
    const std::vector<std::string>& folders = setup_.config().offload.nvme_paths;
    const int64_t steps = std::max<int64_t>(1, result.steps);
    const int64_t parts = steps * std::ssize(folders);
    for (const std::string& folder : folders)
        log_info("offload", "{}",
                 storage::wear_text(folder, Bytes{written.value / parts},
                                    std::max(result.time / steps, Duration{1}),
                                    storage::disk_facts(folder).capacity));
    log_info(
        "offload", "checksums take {:.1f} ms per step, in parallel with the computation",
        to_milliseconds(after.checksum_time - before.checksum_time) / static_cast<double>(steps));
}

}  // namespace dslaunch::job
