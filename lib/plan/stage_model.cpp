#include "plan/stage_model.h"

#include "base/check.h"

namespace dslaunch {

ModelInfo stage_model(const ModelInfo& model, const SegmentSpan& span) {
    DSL_CHECK(span.begin >= 0 && span.begin < span.end &&
                  span.end <= static_cast<int>(model.segments.size()),
              "segments {} to {} of {}", span.begin, span.end, model.segments.size());
    ModelInfo stage = model;
    stage.segments.assign(model.segments.begin() + span.begin, model.segments.begin() + span.end);
    return stage;
}

StageWork stage_work(const ModelInfo& model, const SegmentSpan& span,
                     std::vector<PipelineWork> order) {
    StageWork work;
    work.order = std::move(order);
    work.first = span.begin == 0;
    work.last = span.end == static_cast<int>(model.segments.size());
    if (work.first) return work;
    const SegmentInfo& before = model.segments[static_cast<size_t>(span.begin) - 1];
    work.received = before.output_bytes;
    work.gives_gradients = before.backward;
    return work;
}

std::vector<int> parameters_of_several(const ModelInfo& model,
                                       const std::vector<SegmentSpan>& stages) {
    std::vector<int> readers(model.parameters.size(), -1);
    std::vector<char> several(model.parameters.size(), 0);
    for (size_t stage = 0; stage < stages.size(); ++stage)
        for (int s = stages[stage].begin; s < stages[stage].end; ++s)
            for (const int p : model.segments[static_cast<size_t>(s)].parameters) {
                int& reader = readers[static_cast<size_t>(p)];
                if (reader >= 0 && reader != static_cast<int>(stage))
                    several[static_cast<size_t>(p)] = 1;
                reader = static_cast<int>(stage);
            }
    std::vector<int> found;
    for (size_t p = 0; p < several.size(); ++p)
        if (several[p] != 0) found.push_back(static_cast<int>(p));
    return found;
}

}  // namespace dslaunch
