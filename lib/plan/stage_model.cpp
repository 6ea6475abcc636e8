#include "plan/stage_model.h"

#include "base/check.h"

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

}  // namespace dslaunch
