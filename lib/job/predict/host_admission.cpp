#include "job/predict/host_admission.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"
#include "job/predict/changed_job.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/rank_comms.h"
#include "plan/choose/memory_choice.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"
#include "runtime/comm/host/arena.h"
#include "runtime/train/trainer.h"
#include "storage/checkpoint/disk_sink.h"
#include "zero/zero_state.h"

namespace dslaunch::job {

namespace {

Bytes arena_of_stage(const JobSetup& setup) {
    if (setup.on_gpu) return {};  // each rank's buffers are in the memory of its GPU
    const runtime::Topology& ranks = setup.place.of_stage;
    const zero::ShardMap shards(setup.layout, setup.partition.get(), setup.plan_options.stage,
                                ranks, setup.plan_options.offload.parameters,
                                setup.plan_options.shard_group, setup.plan_options.whole_tensors);
    runtime::ArenaLayout arena(ranks.local_world_size());
    (void)zero::ZeroState::add_slices(
        {&setup.layout, setup.partition.get(), &setup.plan_options, &setup.plan, &shards},
        setup.config().precision.weights(), arena);
    return touched_bytes(arena);
}

// Returns how many bytes of the gradients of other local ranks this rank never reads. Assumes that
// each bucket has separate memory. Each rank reads one part of all gradients, in order to sum it.
// At ZeRO stage 0, it also reads the sums of the other parts.
Bytes unread(const JobSetup& setup) {
    const plan::StepPlanOptions& options = setup.plan_options;
    const int64_t ranks = options.local_world_size;
    if (setup.on_gpu || options.stage >= 2 || options.fused_update || options.node_count() > 1)
        return {};
    const int64_t parts_read = options.stage == 0 ? 2 : 1;
    const int64_t parts_left = std::max<int64_t>(0, ranks - parts_read);
    return Bytes{(ranks - 1) * setup.layout.trained_numel * parts_left / ranks *
                 static_cast<int64_t>(sizeof(float))};
}

// Returns the setups of other ranks on PLACE's host: one rank for each other stage and each other
// tensor share. All shares are assumed to be as large as SETUP's.
std::vector<JobSetup> others_on_host(const JobSetup& setup, const runtime::Topology& place) {
    std::set<std::pair<int, int>> seen = {{setup.place.stage, setup.sharing.place.share()}};
    std::vector<JobSetup> others;
    for (int local = 0; local < place.local_world_size(); ++local) {
        runtime::Topology rank = place;
        rank.local_rank = local;
        const runtime::PipelinePlace stage = place_in_stages(setup.config(), rank);
        const SharingPlace sharing = place_in_group(setup.config(), rank, stage);
        if (seen.insert({stage.stage, sharing.share()}).second)
            others.push_back(seen_from(setup, rank));
    }
    return others;
}

}  // namespace

plan::HostNeed need_of_host(const JobSetup& setup, const runtime::Topology& place,
                            const ProgramMemory& program) {
    std::vector<plan::StepPlan> plans;
    Bytes arena, resident, extra;
    const auto add = [&](const JobSetup& stage) {
        std::vector<plan::StepPlan> of_stage = make_host_plans(stage);
        const Bytes own = arena_of_stage(stage);
        arena += own;
        if (stage.on_gpu) extra = plan::device_extra(stage.plan_options);
        resident = std::max(resident,
                            plan::host_need(of_stage, own - unread(stage), program).resident_max);
        std::ranges::move(of_stage, std::back_inserter(plans));
    };
    add(setup);
    const Bytes links = RankComms::shared_bytes(setup, place.local_world_size());
    if (setup.is_divided()) {
        for (const JobSetup& other : others_on_host(setup, place)) add(other);
    }
    plan::HostNeed need = plan::host_need(plans, arena + links, program, extra);
    need.resident_max = resident + links;
    return need;
}

namespace {

plan::MemoryChoice choice_of(const config::RunConfig& config, const runtime::Topology& place) {
    plan::MemoryChoice choice;
    choice.stage = config.zero.stage;
    choice.recompute_groups = config.recompute_groups;
    choice.optimizer_on_disk = config.offload.optimizer == config::OffloadDevice::kNvme;
    choice.parameters_on_disk = config.offload.parameters == config::OffloadDevice::kNvme;
    choice.micro_rows = config.batch.micro_rows;
    choice.hosts = place.node_count();
    return choice;
}

config::RunConfig with_choice(config::RunConfig config, const plan::MemoryChoice& choice) {
    config.zero.stage = choice.stage;
    if (choice.stage >= 2) config.reduce = config::ReduceWhen::kMicroStep;
    config.recompute_groups = choice.recompute_groups;
    if (choice.optimizer_on_disk) config.offload.optimizer = config::OffloadDevice::kNvme;
    if (choice.parameters_on_disk) config.offload.parameters = config::OffloadDevice::kNvme;
    if (choice.micro_rows < config.batch.micro_rows)
        config.batch.accumulation_steps *= config.batch.micro_rows / choice.micro_rows;
    config.batch.micro_rows = choice.micro_rows;
    return config;
}

// Returns PLACE with hosts added until there are HOSTS hosts. The added hosts repeat the numbers of
// ranks of the given hosts, in order.
runtime::Topology among_hosts(runtime::Topology place, int64_t hosts) {
    const auto given = static_cast<int64_t>(place.node_count());
    for (int64_t node = given; node < hosts; ++node)
        place.node_sizes.push_back(place.node_sizes[static_cast<size_t>(node % given)]);
    return place;
}

std::optional<plan::HostNeed> need_with(const JobSetup& setup, const runtime::Topology& place,
                                        const ProgramMemory& program,
                                        const plan::MemoryChoice& choice) {
    if (choice.optimizer_on_disk && choice.stage < 1) return {};
    if (choice.parameters_on_disk && choice.stage < 3) return {};
    const bool on_disk = choice.optimizer_on_disk || choice.parameters_on_disk;
    if (on_disk && (setup.sharing.plan || setup.on_gpu)) return {};
    const runtime::Topology ranks = among_hosts(place, choice.hosts);
    const std::optional<JobSetup> other =
        changed_job(setup, ranks, with_choice(setup.config(), choice));
    if (!other) return {};
    return need_of_host(*other, ranks, program);
}

// Returns the size of the buffers with which a rank writes its two checkpoint files: one for its
// part of the weights, and one for its part of the states.
Bytes saving_memory_of_stage(const JobSetup& setup) {
    int64_t numel = 0;
    for (int p = 0; p < std::ssize(setup.info.parameters); ++p) {
        const int slice = setup.layout.slice_of(p);
        if (slice >= 0 && slice < setup.layout.trained_slices)
            numel += setup.info.parameters[p].numel;
    }
    const int64_t bytes =
        (numel / setup.place.of_stage.world_size() + 1) * static_cast<int64_t>(sizeof(float));
    return storage::DiskSink::memory(Bytes{bytes}) +
           storage::DiskSink::memory(Bytes{bytes * setup.plan_options.optimizer_states});
}

// Returns the bytes that a rank needs to sum gradients with other hosts (comm/host_exchange.h). One
// buffer holds the rank's stripe of the largest bucket. This host sums one part of the stripe, and
// needs one buffer of the part's size for each other host.
Bytes exchange_memory(const JobSetup& setup) {
    const runtime::Topology& ranks = setup.place.of_stage;
    if (ranks.node_count() == 1) return {};
    int64_t numel = 0;
    for (int b = 0; b < setup.layout.trained_buckets; ++b) {
        const plan::Bucket& bucket = setup.layout.buckets[b];
        numel = std::max(numel, bucket.numel + plan::flag_numel(bucket));
    }
    const int64_t stripe = numel / ranks.bridge_count();
    const int64_t own = stripe / ranks.node_count();
    return Bytes{(stripe + own * (ranks.node_count() - 1)) * static_cast<int64_t>(sizeof(float))};
}

bool limits_known(const std::vector<plan::TierVerdict>& verdicts) {
    return std::ranges::all_of(verdicts,
                               [](const plan::TierVerdict& one) { return one.limit.has_value(); });
}

// Returns the size of the saving buffers for the stage on PLACE's host that needs the most memory.
Bytes saving_memory(const JobSetup& setup, const runtime::Topology& place) {
    Bytes most = saving_memory_of_stage(setup);
    if (!setup.place.is_pipeline()) return most;
    for (const JobSetup& other : others_on_host(setup, place))
        most = std::max(most, saving_memory_of_stage(other));
    return most;
}

}  // namespace

HostAdmission admit_host(const JobSetup& setup, const runtime::Topology& place,
                         const AdmissionOptions& options) {
    ::malloc_trim(0);  // memory that the trial run has freed does not count
    ProgramMemory program = read_program_memory();
    program.own += exchange_memory(setup);
    if (options.saves) program.own += saving_memory(setup, place);
    plan::ChoiceSearch search;
    search.from = choice_of(setup.config(), place);
    search.segments = std::ssize(setup.model_info.segments);
    search.limits = {read_memory_state(), options.processes,
                     read_disk_room(setup.config().offload.nvme_paths), options.device};
    search.need_of = [&](const plan::MemoryChoice& choice) {
        return need_with(setup, place, program, choice);
    };
    HostAdmission admission;
    admission.program = program;
    admission.need = need_of_host(setup, place, program);
    admission.verdicts = plan::admit(admission.need, search.limits);
    if (!plan::all_fit(admission.verdicts))
        admission.advice = plan::admission_advice(search, admission.verdicts);
    else if (options.finds_most_rows && limits_known(admission.verdicts))
        admission.most_rows = plan::most_rows(search);
    return admission;
}

void JobRoom::check_host(const JobSetup& setup, const runtime::Topology& place, bool saves,
                         runtime::DeviceBackend* device) {
    AdmissionOptions options{place.local_world_size(), saves};
    if (device != nullptr) {
        const runtime::DeviceMemoryState memory = device->memory_state();
        options.device = {memory.left,
                          fmt::format("{}, {}, others use {}", device->device_name(),
                                      to_text(memory.total), to_text(memory.total - memory.left))};
    }
    admission_ = admit_host(setup, place, options);
    estimate_ = device != nullptr ? admission_->need.device : admission_->need.of_rank();
    if (place.rank() == 0)
        log_debug("memory", "\n{}", plan::admission_table(admission_->need, admission_->verdicts));
    plan::require_admission(admission_->need, admission_->verdicts, admission_->advice);
    if (device != nullptr) device->restart_peak();
}

std::string JobRoom::text() const {
    return admission_ ? plan::admission_text(admission_->need, admission_->verdicts) : "";
}

std::string JobRoom::brief() const {
    if (!admission_ || admission_->verdicts.empty()) return "";
    const plan::TierVerdict& memory = admission_->verdicts.front();
    return to_text(memory.need) + (memory.limit ? " of " + to_text(*memory.limit) : "");
}

void JobRoom::agree(runtime::Collectives& job) {
    for (const Bytes estimate : runtime::gather_values(job, estimate_))
        estimate_ = std::max(estimate_, estimate);
}

std::string result_json(const ComparedMemory& memory) {
    JsonWriter json;
    json.begin_object().key("memory").begin_object().field("place", memory.place);
    json.field("estimated_bytes", memory.estimated.value);
    json.field("measured_bytes", memory.measured.value);
    json.end_object().end_object();
    return json.text();
}

std::optional<ComparedMemory> JobRoom::compare(JobSetup& setup, const runtime::Topology& place,
                                               const std::optional<plan::StepPlanOptions>& options,
                                               const runtime::TrainResult& result) {
    if (options && admission_) {
        setup.plan_options = *options;
        estimate_ = need_of_host(setup, place, admission_->program).of_rank();
    }
    if (estimate_.value == 0) return std::nullopt;
    if (!setup.on_gpu) {
        log_info("train", "{}", plan::estimate_text("a rank", estimate_, result.peak_rss));
        return ComparedMemory{"a rank", estimate_, result.peak_rss};
    }
    const Bytes groups = plan::group_memory(setup.plan_options);
    const ComparedMemory memory{"a GPU", estimate_ - groups, result.peak_device};
    log_info("train", "{}; LibTorch's allocator held {}; NCCL's buffers are estimated at {}",
             plan::estimate_text(memory.place, memory.estimated, memory.measured),
             to_text(result.peak_device_held), to_text(groups));
    return memory;
}

}  // namespace dslaunch::job
