#include "worker/job_stages.h"

#include <fmt/format.h>

#include <functional>

#include "base/error.h"
#include "plan/mesh.h"
#include "plan/pipeline_costs.h"
#include "plan/stage_model.h"

namespace dslaunch {

namespace {

PipelineShape pipeline_shape(const RunConfig& config) {
    return {static_cast<int>(config.pipeline.stages), 1,
            static_cast<int>(config.batch.accumulation_steps)};
}

std::vector<std::vector<int>> ranks_of_stages(const RunConfig& config, const Topology& place) {
    const auto stages = static_cast<int>(config.pipeline.stages);
    MeshSizes sizes;
    sizes.pipeline = stages;
    sizes.data = place.world_size() / stages;
    const Mesh mesh = Mesh::make(sizes, place.node_sizes);
    std::vector<std::vector<int>> ranks(static_cast<size_t>(stages));
    for (int rank = 0; rank < place.world_size(); ++rank) {
        const int stage = mesh.index_of(rank)[static_cast<size_t>(MeshAxis::kPipeline)];
        ranks[static_cast<size_t>(stage)].push_back(rank);
    }
    return ranks;
}

}  // namespace

PipelinePlace place_in_stages(const RunConfig& config, const Topology& place) {
    return make_pipeline_place(place.node_sizes, ranks_of_stages(config, place), place.rank());
}

void choose_segments(JobSetup& setup) {
    const RunConfig& config = setup.config();
    setup.stages = {{0, static_cast<int>(setup.model_info.segments.size())}};
    setup.ties.clear();
    if (!setup.place.is_pipeline()) return;
    constexpr double kFlopsPerSecond = 1e11;  // only shares count
    StageRequest request = make_stage_request(setup.model_info, setup.plan_options,
                                              times_from_flops(setup.model_info, kFlopsPerSecond));
    request.schedule = config.pipeline.schedule;
    request.shape = pipeline_shape(config);
    const StageChoice choice = config.pipeline.first_segments.empty()
                                   ? choose_stages(request)
                                   : given_stages(request, config.pipeline.first_segments);
    setup.stages = choice.parts;
    setup.ties = trained_ties(setup.model_info, choice.parts, choice.tied);
    if (setup.ties.empty() || !config.offload.on_disk()) return;
    const TiedParameter& tied = setup.ties.front();
    fail(ExitCode::kConfig,
         "stages {} and {} of the pipeline both train parameter {}, which cannot be offloaded to "
         "nvme in this version; leave offload or the pipeline out",
         tied.stages.front(), tied.stages.back(),
         setup.model_info.parameters[static_cast<size_t>(tied.parameter)].name);
}

StageWork work_of_stage(const JobSetup& setup) {
    const PipelineSchedule schedule =
        make_schedule(setup.config().pipeline.schedule, pipeline_shape(setup.config()));
    const auto stage = static_cast<size_t>(setup.place.stage);
    StageWork work = stage_work(setup.model_info, setup.own_segments(), schedule.stages[stage]);
    work.ties = ties_of_stage(setup.ties, setup.place.stage);
    return work;
}

void check_pipeline(const JobSetup& setup) {
    if (setup.config().pipeline.stages == 1) return;
    if (setup.on_gpu)
        fail(ExitCode::kConfig,
             "dslaunch.pipeline.stages: pipelines run on CPUs only in this version; leave the key "
             "out, or set dslaunch.device to cpu");
    if (setup.config().offload.adaptive)
        fail(ExitCode::kConfig,
             "dslaunch.offload.placement auto: placements are fixed in a pipeline in this version; "
             "leave the key out");
    if (!setup.segmented->states().empty())
        fail(ExitCode::kInput,
             "forward writes the attribute `{}`, which the first stage of a pipeline would read "
             "and the last one write; leave dslaunch.pipeline.stages out for this model",
             setup.segmented->states().front().path);
}

std::vector<std::vector<int>> stages_of_parameters(const JobSetup& setup) {
    std::vector<std::vector<int>> stages_of(setup.model_info.parameters.size());
    for (int stage = 0; stage < std::ssize(setup.stages); ++stage) {
        const SegmentRange& range = setup.stages[static_cast<size_t>(stage)];
        for (int s = range.begin; s < range.end; ++s)
            for (const int p : setup.model_info.segments[static_cast<size_t>(s)].parameters) {
                std::vector<int>& of = stages_of[static_cast<size_t>(p)];
                if (of.empty() || of.back() != stage) of.push_back(stage);
            }
    }
    return stages_of;
}

std::vector<std::vector<int>> stages_of_buffers(const JobSetup& setup) {
    std::vector<std::vector<int>> stages_of(setup.model->buffers().size());
    const auto add = [&](const std::vector<int>& buffers, int stage) {
        for (const int b : buffers) {
            std::vector<int>& of = stages_of[static_cast<size_t>(b)];
            if (of.empty() || of.back() != stage) of.push_back(stage);
        }
    };
    for (int stage = 0; stage < std::ssize(setup.stages); ++stage) {
        const SegmentRange& range = setup.stages[static_cast<size_t>(stage)];
        for (int s = range.begin; s < range.end; ++s) {
            const Segment& segment = setup.segmented->segments()[static_cast<size_t>(s)];
            add(segment.buffers, stage);
            if (segment.module_input) add(setup.segmented->lowered().opaque_buffers, stage);
        }
    }
    return stages_of;
}

std::vector<int> read_earlier(const JobSetup& setup) {
    std::vector<int> parameters;
    const std::vector<std::vector<int>> stages_of = stages_of_parameters(setup);
    for (int p = 0; p < std::ssize(stages_of); ++p) {
        const std::vector<int>& of = stages_of[static_cast<size_t>(p)];
        if (!of.empty() && of.front() < setup.place.stage) parameters.push_back(p);
    }
    return parameters;
}

void check_ties(const JobSetup& setup, const Topology& place) {
    for (const TiedParameter& tie : setup.ties)
        for (const int stage : tie.stages) {
            const auto at = [&](int s) {
                const int rank = setup.place.pipeline[static_cast<size_t>(s)];
                return place_in_stages(setup.config(), Topology::of_rank(place.node_sizes, rank))
                    .of_stage.node_sizes;
            };
            if (at(stage) == at(tie.stages.front())) continue;
            fail(ExitCode::kConfig,
                 "stages {} and {} of the pipeline both train parameter {}, and their ranks lie "
                 "otherwise on hosts; give all hosts equally many slots, or put what reads it into "
                 "one stage by dslaunch.pipeline.first_segments",
                 tie.stages.front(), stage,
                 setup.model_info.parameters[static_cast<size_t>(tie.parameter)].name);
        }
}

std::string agreement(const JobSetup& setup) {
    const RunConfig& config = setup.config();
    std::string text = fmt::format("{} {} {} {}", schedule_name(config.pipeline.schedule),
                                   config.batch.accumulation_steps, config.steps, config.seed);
    for (const SegmentRange& range : setup.stages) text += fmt::format(" {}", range.begin);
    for (const SegmentInfo& segment : setup.model_info.segments)
        text += fmt::format(" {} {}", segment.name, segment.output_bytes.value);
    for (const ParameterInfo& parameter : setup.model_info.parameters)
        text += fmt::format(" {} {}", parameter.name, parameter.numel);
    return fmt::format("{:016x}", std::hash<std::string>{}(text));
}

std::string stages_text(const JobSetup& setup) {
    const PipelineConfig& pipeline = setup.config().pipeline;
    std::string text =
        fmt::format("pipeline: {} stages of {} ranks, {}, {} micro batches a step", pipeline.stages,
                    setup.place.of_stage.world_size(), schedule_name(pipeline.schedule),
                    setup.config().batch.accumulation_steps);
    for (size_t s = 0; s < setup.stages.size(); ++s) {
        const SegmentRange& range = setup.stages[s];
        const ModelInfo stage = stage_model(setup.model_info, range);
        std::vector<char> read(stage.parameters.size(), 0);
        for (const SegmentInfo& segment : stage.segments)
            for (const int p : segment.parameters) read[static_cast<size_t>(p)] = 1;
        int64_t numel = 0;
        for (size_t p = 0; p < read.size(); ++p)
            if (read[p] != 0) numel += stage.parameters[p].numel;
        text += fmt::format(
            "\n  stage {}: segments {} to {} ({} to {}), {} parameters, {:.3g} "
            "GFLOP forward",
            s, range.begin, range.end - 1, stage.segments.front().name, stage.segments.back().name,
            numel, static_cast<double>(stage.forward_flops()) / 1e9);
    }
    return text;
}

}  // namespace dslaunch
