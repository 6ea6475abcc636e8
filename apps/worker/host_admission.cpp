#include "worker/host_admission.h"

#include <malloc.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "plan/memory_choice.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/host_link.h"
#include "storage/checkpoint/disk_sink.h"
#include "worker/job_stages.h"
#include "zero/zero_state.h"

namespace dslaunch {

namespace {

Bytes arena_of_stage(const JobSetup& setup) {
    const Topology& ranks = setup.place.of_stage;
    const ShardMap shards(setup.layout, setup.partition.get(), setup.plan_options.stage, ranks,
                          setup.plan_options.offload.parameters);
    ArenaLayout arena(ranks.local_world_size());
    (void)ZeroState::add_slices(
        {&setup.layout, setup.partition.get(), &setup.plan_options, &setup.plan, &shards},
        setup.config().precision.compute, arena);
    return arena.total_bytes();
}

// Of the other stages that have ranks on PLACE's host, the same job as one of these sees it.
std::vector<JobSetup> other_stages(const JobSetup& setup, const Topology& place) {
    std::set<int> seen = {setup.place.stage};
    std::vector<JobSetup> others;
    for (int local = 0; local < place.local_world_size(); ++local) {
        Topology rank = place;
        rank.local_rank = local;
        const int stage = place_in_stages(setup.config(), rank).stage;
        if (seen.insert(stage).second) others.push_back(seen_from(setup, rank));
    }
    return others;
}

}  // namespace

HostNeed need_of_host(const JobSetup& setup, const Topology& place, const ProgramMemory& program) {
    std::vector<StepPlan> plans = make_host_plans(setup);
    Bytes arena = arena_of_stage(setup);
    if (setup.place.is_pipeline()) {
        ArenaLayout of_all(place.local_world_size());
        static_cast<void>(HostLink::add_slice(of_all, setup.place.stages));
        arena += of_all.total_bytes();
        for (const JobSetup& other : other_stages(setup, place)) {
            std::ranges::move(make_host_plans(other), std::back_inserter(plans));
            arena += arena_of_stage(other);
        }
    }
    return host_need(plans, arena, program);
}

namespace {

MemoryChoice choice_of(const RunConfig& config) {
    MemoryChoice choice;
    choice.stage = config.zero.stage;
    choice.recompute_groups = config.recompute_groups;
    choice.optimizer_on_disk = config.offload.optimizer == OffloadDevice::kNvme;
    choice.parameters_on_disk = config.offload.parameters == OffloadDevice::kNvme;
    choice.micro_rows = config.batch.micro_rows;
    return choice;
}

RunConfig with_choice(RunConfig config, const MemoryChoice& choice) {
    config.zero.stage = choice.stage;
    if (choice.stage >= 2) config.reduce = ReduceWhen::kMicroStep;
    config.recompute_groups = choice.recompute_groups;
    if (choice.optimizer_on_disk) config.offload.optimizer = OffloadDevice::kNvme;
    if (choice.parameters_on_disk) config.offload.parameters = OffloadDevice::kNvme;
    config.batch.accumulation_steps *= config.batch.micro_rows / choice.micro_rows;
    config.batch.micro_rows = choice.micro_rows;
    return config;
}

// Bytes of the largest gradient of a parameter that the backward of SEGMENT makes.
Bytes largest_gradient(const ModelInfo& info, const SegmentInfo& segment) {
    Bytes largest;
    for (const int p : segment.parameters) {
        const ParameterInfo& parameter = info.parameters[static_cast<size_t>(p)];
        if (parameter.trainable)
            largest = std::max(largest, Bytes{parameter.numel * parameter.element_bytes});
    }
    return largest;
}

// INFO with NUMERATOR / DENOMINATOR of its rows: what a row takes is taken to be the same.
ModelInfo with_rows(ModelInfo info, int64_t numerator, int64_t denominator) {
    const auto scale = [&](Bytes& bytes) { bytes.value = bytes.value * numerator / denominator; };
    // Gradients of parameters do not shrink with the rows.
    const auto scale_above = [&](Bytes& bytes, Bytes fixed) {
        fixed = std::min(bytes, fixed);
        Bytes rest = bytes - fixed;
        scale(rest);
        bytes = fixed + rest;
    };
    for (SegmentInfo& segment : info.segments) {
        scale(segment.output_bytes);
        scale(segment.activation_bytes);
        scale(segment.forward_peak);
        scale(segment.forward_blocks);
        scale_above(segment.backward_peak, largest_gradient(info, segment));
        scale_above(segment.backward_blocks, largest_gradient(info, segment));
        segment.forward_flops = segment.forward_flops * numerator / denominator;
    }
    scale(info.batch_bytes);
    return info;
}

std::optional<HostNeed> need_with(const JobSetup& setup, const Topology& place,
                                  const ProgramMemory& program, const MemoryChoice& choice) {
    if (choice.optimizer_on_disk && choice.stage < 1) return {};
    if (choice.parameters_on_disk && choice.stage < 3) return {};
    JobSetup other;
    other.resolved.config = with_choice(setup.config(), choice);
    other.model_info =
        with_rows(setup.model_info, choice.micro_rows, setup.config().batch.micro_rows);
    lay_out_job(other, place);
    if (!why_no_plan(other).empty()) return {};
    other.plan = make_plan(other, other.place.of_stage);
    return need_of_host(other, place, program);
}

// The buffers of a rank's two files of a checkpoint, its part of the weights and of the states.
Bytes saving_memory(const JobSetup& setup) {
    int64_t numel = 0;
    for (int p = 0; p < std::ssize(setup.info.parameters); ++p) {
        const int slice = setup.layout.slice_of(p);
        if (slice >= 0 && slice < setup.layout.trained_slices)
            numel += setup.info.parameters[static_cast<size_t>(p)].numel;
    }
    const int64_t bytes =
        (numel / setup.place.of_stage.world_size() + 1) * static_cast<int64_t>(sizeof(float));
    return DiskSink::memory(Bytes{bytes}) +
           DiskSink::memory(Bytes{bytes * setup.plan_options.optimizer_states});
}

}  // namespace

HostAdmission admit_host(const JobSetup& setup, const Topology& place,
                         const AdmissionOptions& options) {
    ::malloc_trim(0);  // what the trial run has let go of is no part of the program
    ProgramMemory program = read_program_memory();
    if (options.saves) program.own += saving_memory(setup);
    ChoiceSearch search;
    search.from = choice_of(setup.config());
    search.segments = static_cast<int64_t>(setup.info.segments.size());
    search.limits = {read_memory_state(), options.processes,
                     read_disk_room(setup.config().offload.nvme_paths)};
    search.need_of = [&](const MemoryChoice& choice) {
        return need_with(setup, place, program, choice);
    };
    HostAdmission admission;
    admission.program = program;
    admission.need = need_of_host(setup, place, program);
    admission.verdicts = admit(admission.need, search.limits);
    if (!all_fit(admission.verdicts))
        admission.advice = admission_advice(search, admission.verdicts);
    return admission;
}

}  // namespace dslaunch
