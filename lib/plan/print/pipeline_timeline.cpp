#include "plan/print/pipeline_timeline.h"

#include <fmt/core.h>

namespace dslaunch::plan {
namespace {

// The colours of works, by WorkKind; a whole backward has the colour of its first half.
constexpr int kColourOfWork[] = {0, 1, 1, 2};

}  // namespace

Timeline pipeline_timeline(const PipelineSchedule& schedule, const TimedRun& run) {
    const PipelineShape& shape = schedule.shape;
    Timeline timeline;
    timeline.title = fmt::format("{}: {} stages, {} micro batches, {:.4g} ms, {:.1f} % idle",
                                 schedule_name(schedule.kind), shape.stages, shape.micro_batches,
                                 run.step_s * 1e3, run.idle_share * 100);
    if (splits_backward(schedule.kind)) {
        timeline.kinds = {"forward", "backward for inputs", "backward for weights"};
    } else {
        timeline.kinds = {"forward", "backward"};
    }
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
        timeline.shades.push_back(fmt::format("chunk {}", chunk));
    for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
        TimelineLane lane;
        lane.name = fmt::format("stage {}", stage);
        lane.remark = fmt::format("idle {:.1f} %", 100 * run.idle_share_of(stage));
        for (size_t i = 0; i < schedule.stages[stage].size(); ++i) {
            const PipelineWork& work = schedule.stages[stage][i];
            const TimedSpan& span = run.spans[stage][i];
            lane.spans.push_back({span.begin_s, span.end_s,
                                  kColourOfWork[static_cast<size_t>(work.kind)], work.chunk,
                                  fmt::format("{}", work.micro_batch),
                                  fmt::format("{}, chunk {}, micro batch {}: {:.4g} to {:.4g} ms",
                                              work_name(work.kind), work.chunk, work.micro_batch,
                                              span.begin_s * 1e3, span.end_s * 1e3)});
        }
        timeline.lanes.push_back(std::move(lane));
    }
    return timeline;
}

}  // namespace dslaunch::plan
