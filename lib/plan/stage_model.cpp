#include "plan/stage_model.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

ModelInfo stage_model(const ModelInfo& model, const SegmentRange& range) {
    DSL_CHECK(range.begin >= 0 && range.begin < range.end &&
                  range.end <= static_cast<int>(model.segments.size()),
              "segments {} to {} of {}", range.begin, range.end, model.segments.size());
    ModelInfo stage = model;
    stage.segments.assign(model.segments.begin() + range.begin, model.segments.begin() + range.end);
    return stage;
}

StageWork stage_work(const ModelInfo& model, const SegmentRange& range,
                     std::vector<PipelineWork> order) {
    StageWork work;
    work.order = std::move(order);
    work.first = range.begin == 0;
    work.last = range.end == static_cast<int>(model.segments.size());
    if (work.first) return work;
    const SegmentInfo& before = model.segments[static_cast<size_t>(range.begin) - 1];
    work.received = before.output_bytes;
    work.gives_gradients = before.backward;
    return work;
}

std::vector<TiedParameter> trained_ties(const ModelInfo& model,
                                        const std::vector<SegmentRange>& ranges,
                                        const std::vector<TiedParameter>& tied) {
    std::vector<TiedParameter> ties;
    for (const TiedParameter& candidate : tied) {
        const auto p = static_cast<size_t>(candidate.parameter);
        std::vector<int> trained;
        for (const int stage : candidate.stages)
            if (stage_model(model, ranges[static_cast<size_t>(stage)]).trained()[p])
                trained.push_back(stage);
        if (trained.empty()) continue;
        for (const int stage : candidate.stages)
            if (std::ranges::find(trained, stage) == trained.end())
                fail(ExitCode::kConfig,
                     "stage {} of the pipeline reads parameter {} without training it, stage {} "
                     "trains it; put both into one stage by dslaunch.pipeline.first_segments",
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
        stages_of[static_cast<size_t>(bucket)] = tie.stages;
    }
    return stages_of;
}

std::vector<int> counted_elsewhere(const std::vector<TiedParameter>& ties, int stage) {
    std::vector<int> parameters;
    for (const TiedParameter& tie : ties)
        if (tie.stages.front() != stage) parameters.push_back(tie.parameter);
    return parameters;
}

}  // namespace dslaunch
