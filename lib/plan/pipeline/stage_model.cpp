#include "plan/pipeline/stage_model.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::plan {

std::vector<std::vector<SegmentRange>> ranges_of_stages(ScheduleKind kind,
                                                        const PipelineShape& shape,
                                                        const std::vector<SegmentRange>& parts) {
    std::vector<std::vector<SegmentRange>> stages(static_cast<size_t>(shape.stages));
    for (int stage = 0; stage < shape.stages; ++stage)
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
            stages[stage].push_back(
                parts.at(static_cast<size_t>(part_of(kind, shape, {stage, chunk}))));
    return stages;
}

ModelInfo stage_model(const ModelInfo& model, const std::vector<SegmentRange>& ranges) {
    ModelInfo stage = model;
    stage.segments.clear();
    for (const SegmentRange& range : ranges) {
        DSL_CHECK(range.begin >= 0 && range.begin < range.end &&
                      range.end <= static_cast<int>(model.segments.size()),
                  "segments {} to {} lie outside the model's {} segments", range.begin, range.end,
                  model.segments.size());
        stage.segments.insert(stage.segments.end(), model.segments.begin() + range.begin,
                              model.segments.begin() + range.end);
    }
    return stage;
}

StageWork stage_work(const ModelInfo& model, const std::vector<SegmentRange>& parts,
                     const PipelineSchedule& schedule, int stage) {
    const PipelineShape& shape = schedule.shape;
    DSL_CHECK(std::ssize(parts) == shape.parts(), "{} parts do not match {} stages of {} chunks",
              parts.size(), shape.stages, shape.chunks);
    const auto side = [&](int part, int cut) {
        if (part < 0 || part == shape.parts()) return StageSide{};
        const PartPlace sender = place_of_part(schedule.kind, shape, cut);
        return StageSide{place_of_part(schedule.kind, shape, part).stage,
                         schedule.kind == ScheduleKind::kZeroBubbleV && sender.chunk == 1};
    };
    StageWork work;
    work.stage = stage;
    work.order = schedule.stages[stage];
    int begin = 0;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
        StagePart& own = work.parts.emplace_back();
        own.part = part_of(schedule.kind, shape, {stage, chunk});
        const SegmentRange& range = parts[own.part];
        own.segments = {begin, begin + range.end - range.begin};
        begin = own.segments.end;
        own.first_segment = range.begin;
        own.before = side(own.part - 1, own.part - 1);
        own.behind = side(own.part + 1, own.part);
        if (range.begin == 0) continue;
        const SegmentInfo& before = model.segments[range.begin - 1];
        own.received = before.output_bytes;
        own.gives_gradients = before.backward;
    }
    return work;
}

std::vector<int> part_begins(const StageWork& work) {
    std::vector<int> begins;
    for (size_t part = 1; part < work.parts.size(); ++part)
        begins.push_back(work.parts[part].segments.begin);
    return begins;
}

std::vector<TiedParameter> trained_ties(const ModelInfo& model,
                                        const std::vector<std::vector<SegmentRange>>& stages,
                                        const std::vector<TiedParameter>& tied) {
    std::vector<TiedParameter> ties;
    for (const TiedParameter& candidate : tied) {
        const auto p = static_cast<size_t>(candidate.parameter);
        std::vector<int> trained;
        for (const int stage : candidate.stages)
            if (stage_model(model, stages[stage]).trained()[p]) trained.push_back(stage);
        if (trained.empty()) continue;
        for (const int stage : candidate.stages)
            if (std::ranges::find(trained, stage) == trained.end())
                fail(ExitCode::kConfig,
                     "stage {} of the pipeline reads parameter {} without training it, but stage "
                     "{} trains it; put both into one stage with dslaunch.pipeline.first_segments",
                     stage, model.parameters[p].name, trained.front());
        ties.push_back(candidate);
    }
    return ties;
}

std::vector<TiedParameter> ties_of_stage(const std::vector<TiedParameter>& ties, int stage) {
    std::vector<TiedParameter> own;
    std::ranges::copy_if(ties, std::back_inserter(own), [&](const TiedParameter& tie) {
        return std::ranges::find(tie.stages, stage) != tie.stages.end();
    });
    return own;
}

std::vector<std::vector<int>> stages_of_buckets(const FlatLayout& layout,
                                                const std::vector<TiedParameter>& ties) {
    std::vector<std::vector<int>> stages_of(layout.buckets.size());
    for (const TiedParameter& tie : ties) {
        const int bucket = layout.bucket_of(layout.slice_of(tie.parameter));
        stages_of[bucket] = tie.stages;
    }
    return stages_of;
}

std::vector<int> counted_elsewhere(const std::vector<TiedParameter>& ties, int stage) {
    std::vector<int> parameters;
    for (const TiedParameter& tie : ties)
        if (tie.stages.front() != stage) parameters.push_back(tie.parameter);
    return parameters;
}

}  // namespace dslaunch::plan
