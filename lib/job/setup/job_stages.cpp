#include "job/setup/job_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "graph/measure/measure.h"
#include "job/setup/job_tensor.h"
#include "plan/choose/schedule_choice.h"
#include "plan/choose/stage_choice.h"
#include "plan/mesh/mesh.h"
#include "plan/pipeline/stage_model.h"
#include "plan/step/recompute_groups.h"

namespace dslaunch::job {

namespace {

plan::PipelineShape pipeline_shape(const config::RunConfig& config) {
    return {static_cast<int>(config.pipeline.stages), static_cast<int>(config.pipeline.chunks),
            static_cast<int>(config.batch.accumulation_steps)};
}

// Returns, for each stage, the ranks that have the same tensor shares as the rank at PLACE.
std::vector<std::vector<int>> ranks_of_stages(const config::RunConfig& config,
                                              const runtime::Topology& place) {
    constexpr auto kTensor = static_cast<size_t>(plan::MeshAxis::kTensor);
    const plan::Mesh mesh = mesh_of_job(config, place);
    const int own = mesh.index_of(place.rank())[kTensor];
    std::vector<std::vector<int>> ranks(static_cast<size_t>(config.pipeline.stages));
    for (int rank = 0; rank < place.world_size(); ++rank) {
        const plan::MeshIndex index = mesh.index_of(rank);
        if (index[kTensor] != own) continue;
        ranks[index[static_cast<size_t>(plan::MeshAxis::kPipeline)]].push_back(rank);
    }
    return ranks;
}

}  // namespace

runtime::PipelinePlace place_in_stages(const config::RunConfig& config,
                                       const runtime::Topology& place) {
    return runtime::make_pipeline_place(place.node_sizes, ranks_of_stages(config, place),
                                        place.rank());
}

void choose_segments(JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    setup.parts = {{0, static_cast<int>(setup.model_info.segments.size())}};
    setup.schedule = {};
    setup.ties.clear();
    if (!setup.place.is_pipeline()) return;
    constexpr double kFlopsPerSecond = 1e11;  // any value will do: only the ratios of times matter
    const plan::ModelInfo& costs =
        setup.sharing.of_first ? *setup.sharing.of_first : setup.model_info;
    plan::StageRequest request = plan::make_stage_request(
        costs, setup.plan_options, plan::times_from_flops(costs, kFlopsPerSecond));
    request.schedule = config.pipeline.schedule;
    request.shape = pipeline_shape(config);
    const plan::StageChoice choice =
        config.pipeline.first_segments.empty()
            ? plan::choose_stages(request)
            : plan::given_stages(request, config.pipeline.first_segments);
    setup.parts = choice.parts;
    setup.schedule = plan::schedule_for(request.schedule, request.shape, choice.costs);
    setup.ties = plan::trained_ties(setup.model_info, setup.stages(), choice.tied);
    if (setup.ties.empty() || !config.offload.on_disk()) return;
    const plan::TiedParameter& tied = setup.ties.front();
    fail(ExitCode::kConfig,
         "stages {} and {} of the pipeline both train parameter {}, which cannot be offloaded to "
         "nvme in this version; leave offload or the pipeline out",
         tied.stages.front(), tied.stages.back(), setup.model_info.parameters[tied.parameter].name);
}

std::vector<int> far_ranks(const JobSetup& setup, const runtime::Topology& place) {
    const std::vector<std::vector<int>> ranks = ranks_of_stages(setup.config(), place);
    const int first = place.first_rank(place.node_rank);
    const auto is_here = [&](int rank) {
        return rank >= first && rank < first + place.local_world_size();
    };
    const std::vector<int>& own = ranks[setup.place.stage];
    std::vector<int> far;
    for (const std::vector<int>& other : ranks) {
        int count = 0;
        for (size_t i = 0; i < own.size(); ++i)
            if (is_here(own[i]) && !is_here(other[i])) ++count;
        far.push_back(count);
    }
    return far;
}

void count_sent_by_stage(const JobSetup& setup, plan::StepPlan& plan) {
    const int own = setup.place.stage;
    const auto far_to = [&](int stage) { return setup.far_ranks[stage]; };
    for (plan::Instruction& instruction : plan.instructions) {
        if (instruction.op == plan::Op::kSend) {
            instruction.sent = instruction.bytes * far_to(instruction.peer);
        } else if (instruction.op == plan::Op::kTie) {
            const plan::Bucket& bucket = setup.layout.buckets[instruction.bucket];
            const int parameter = setup.layout.slices[bucket.first_slice].parameter;
            for (const plan::TiedParameter& tie : setup.ties)
                for (const int stage : tie.stages)
                    if (tie.parameter == parameter && stage != own)
                        instruction.sent +=
                            Bytes{instruction.bytes.value / (std::ssize(tie.stages) - 1)} *
                            far_to(stage);
        }
    }
}

plan::StageWork work_of_stage(const JobSetup& setup) {
    plan::StageWork work =
        plan::stage_work(setup.model_info, setup.parts, setup.schedule, setup.place.stage);
    work.ties = plan::ties_of_stage(setup.ties, setup.place.stage);
    return work;
}

int64_t recompute_groups_of_stage(const JobSetup& setup) {
    const std::vector<plan::RecomputeGroup> groups =
        plan::make_recompute_groups(setup.model_info, setup.config().recompute_groups);
    int64_t most = 0;
    for (const plan::SegmentRange& own : setup.own_segments())
        most = std::max<int64_t>(most, std::ranges::count_if(groups, [&](const auto& group) {
                                     return group.begin < own.end && own.begin < group.end;
                                 }));
    return most;
}

void check_shared_buffers(const JobSetup& setup, const std::vector<c10::IValue>& batch) {
    const std::vector<std::vector<int>> stages_of = stages_of_buffers(setup);
    const auto is_shared = [](const std::vector<int>& stages) { return stages.size() > 1; };
    if (std::ranges::none_of(stages_of, is_shared)) return;
    const std::vector<std::vector<int>> moved = graph::moved_buffers(*setup.segmented, batch);
    const std::vector<std::vector<plan::SegmentRange>> parts_of = setup.stages();
    for (int stage = 0; stage < std::ssize(parts_of); ++stage)
        for (const plan::SegmentRange& range : parts_of[stage])
            for (int s = range.begin; s < range.end; ++s)
                for (const int b : moved[s]) {
                    const std::vector<int>& stages = stages_of[b];
                    if (!is_shared(stages)) continue;
                    fail(ExitCode::kConfig,
                         "stages {} and {} of the pipeline both read the buffer {}, which stage {} "
                         "changes in its forward, so their copies would diverge; use "
                         "dslaunch.pipeline.first_segments to put all segments that read it into "
                         "one stage",
                         stages.front(), stages.back(), setup.model->buffers()[b].name, stage);
                }
}

void check_pipeline(const JobSetup& setup) {
    if (setup.config().pipeline.stages == 1) return;
    if (setup.on_gpu)
        fail(ExitCode::kConfig,
             "dslaunch.pipeline.stages: pipelines run on CPUs only in this version; leave the key "
             "out, or set dslaunch.device to cpu");
    if (setup.config().offload.adaptive)
        fail(ExitCode::kConfig,
             "dslaunch.offload.placement: auto is not supported in a pipeline in this version; "
             "leave the key out");
    if (!setup.segmented->states().empty())
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, which the first stage of a pipeline would read "
             "and the last stage would write; leave dslaunch.pipeline.stages out for this model",
             setup.segmented->states().front().path);
}

namespace {

// Calls VISIT(stage, segment) for each segment of the model, stage by stage.
template <typename Visit>
void for_each_segment(const JobSetup& setup, Visit&& visit) {
    const std::vector<std::vector<plan::SegmentRange>> stages = setup.stages();
    for (size_t stage = 0; stage < stages.size(); ++stage)
        for (const plan::SegmentRange& range : stages[stage])
            for (int s = range.begin; s < range.end; ++s)
                visit(static_cast<int>(stage), static_cast<size_t>(s));
}

void add_stage(std::vector<int>& stages_of, int stage) {
    if (stages_of.empty() || stages_of.back() != stage) stages_of.push_back(stage);
}

}  // namespace

std::vector<int> stage_of_parts(const JobSetup& setup) {
    std::vector<int> stages;
    for (int part = 0; part < std::ssize(setup.parts); ++part)
        stages.push_back(
            plan::place_of_part(setup.schedule.kind, setup.schedule.shape, part).stage);
    return stages;
}

std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup) {
    std::vector<std::vector<int>> stages_of(setup.model_info.parameters.size());
    for_each_segment(setup, [&](int stage, size_t s) {
        for (const int p : setup.model_info.segments[s].parameters) add_stage(stages_of[p], stage);
    });
    return stages_of;
}

std::vector<std::vector<int>> stages_of_buffers(const JobSetup& setup) {
    std::vector<std::vector<int>> stages_of(setup.model->buffers().size());
    const auto add = [&](const std::vector<int>& buffers, int stage) {
        for (const int b : buffers) add_stage(stages_of[b], stage);
    };
    for_each_segment(setup, [&](int stage, size_t s) {
        const graph::Segment& segment = setup.segmented->segments()[s];
        add(setup.segmented->buffers_of(segment), stage);
    });
    return stages_of;
}

std::vector<char> buffers_first_read(const JobSetup& setup) {
    const bool first_share = setup.sharing.place.share() == 0;
    std::vector<char> first;
    for (const std::vector<int>& of : stages_of_buffers(setup))
        first.push_back(first_share && setup.place.stage == (of.empty() ? 0 : of.front()) ? 1 : 0);
    return first;
}

std::vector<int> read_earlier(const JobSetup& setup) {
    std::vector<int> parameters;
    const std::vector<std::vector<int>> stages_of = stages_of_parameters(setup);
    for (int p = 0; p < std::ssize(stages_of); ++p) {
        const std::vector<int>& of = stages_of[p];
        if (!of.empty() && of.front() < setup.place.stage) parameters.push_back(p);
    }
    return parameters;
}

void check_ties(const JobSetup& setup, const runtime::Topology& place) {
    for (const plan::TiedParameter& tie : setup.ties)
        for (const int stage : tie.stages) {
            const auto at = [&](int s) {
                const int rank = setup.place.pipeline[s];
                return place_in_stages(setup.config(),
                                       runtime::Topology::of_rank(place.node_sizes, rank))
                    .of_stage.node_sizes;
            };
            if (at(stage) == at(tie.stages.front())) continue;
            fail(ExitCode::kConfig,
                 "stages {} and {} of the pipeline both train parameter {}, but their ranks are "
                 "placed differently on the hosts; give all hosts the same number of slots, or use "
                 "dslaunch.pipeline.first_segments to put all segments that read it into one stage",
                 tie.stages.front(), stage, setup.model_info.parameters[tie.parameter].name);
        }
}

Agreement agreement(const JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    std::string text = fmt::format("{} {} {} {}", schedule_name(config.pipeline.schedule),
                                   config.batch.accumulation_steps, config.steps, config.seed);
    for (const plan::SegmentRange& range : setup.parts) text += fmt::format(" {}", range.begin);
    for (const std::vector<plan::PipelineWork>& works : setup.schedule.stages)
        for (const plan::PipelineWork& work : works)
            text +=
                fmt::format(" {}.{}.{}", plan::work_name(work.kind), work.chunk, work.micro_batch);
    std::string sizes;
    for (const plan::SegmentInfo& segment : setup.model_info.segments) {
        text += fmt::format(" {}", segment.name);
        // With split layers, sizes are not compared, since shares may differ in size.
        if (!setup.sharing.splits()) sizes += fmt::format(" {}", segment.output_bytes.value);
    }
    for (const graph::ModelParameter& parameter : setup.whole_model().parameters())
        text += fmt::format(" {} {}", parameter.name, parameter.tensor.numel());
    for (const plan::TensorCollective& collective : setup.sharing.plan
                                                        ? setup.sharing.plan->collectives
                                                        : std::vector<plan::TensorCollective>())
        text += fmt::format(" {}", collective.where);
    const auto word = [](const std::string& of) {
        return fmt::format("{:016x}", std::hash<std::string>{}(of));
    };
    return {word(text), word(sizes)};
}

namespace {

int64_t read_numel(const plan::ModelInfo& model) {
    std::vector<char> read(model.parameters.size(), 0);
    for (const plan::SegmentInfo& segment : model.segments)
        for (const int p : segment.parameters) read[p] = 1;
    int64_t numel = 0;
    for (size_t p = 0; p < read.size(); ++p)
        if (read[p] != 0) numel += model.parameters[p].numel;
    return numel;
}

std::string ranges_text(const plan::ModelInfo& model,
                        const std::vector<plan::SegmentRange>& ranges) {
    std::string text;
    for (const plan::SegmentRange& range : ranges)
        text += fmt::format("{}{} to {} ({} to {})", text.empty() ? "" : " and ", range.begin,
                            range.end - 1, model.segments[range.begin].name,
                            model.segments[range.end - 1].name);
    return text;
}

}  // namespace

std::string stages_text(const JobSetup& setup) {
    const config::PipelineConfig& pipeline = setup.config().pipeline;
    const std::string chunks =
        pipeline.chunks > 1 ? fmt::format(" with {} chunks per stage", pipeline.chunks) : "";
    std::string text = fmt::format(
        "pipeline: {} stages of {} ranks, {}{}, {} micro batches per step", pipeline.stages,
        setup.place.of_stage.world_size(), schedule_name(pipeline.schedule), chunks,
        setup.config().batch.accumulation_steps);
    const std::vector<std::vector<plan::SegmentRange>> stages = setup.stages();
    for (size_t s = 0; s < stages.size(); ++s) {
        const plan::ModelInfo stage = plan::stage_model(setup.model_info, stages[s]);
        text += fmt::format("\n  stage {}: segments {}, {} parameters, {:.3g} GFLOP forward", s,
                            ranges_text(setup.model_info, stages[s]), read_numel(stage),
                            static_cast<double>(stage.forward_flops()) / 1e9);
    }
    return text;
}

}  // namespace dslaunch::job
