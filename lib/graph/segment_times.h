// How long each segment's forward and backward take here, for a pipeline to be planned: measured on
// one micro batch, a few times each. Stands beside measure.h; feeds plan/pipeline_costs.h. Runs on
// the calling thread with as many threads as LibTorch has.
#pragma once

#include <vector>

#include "graph/segment.h"
#include "plan/pipeline_costs.h"

namespace dslaunch {

// ARGUMENTS: as measure() has them; buffers are left as they were, gradients are let go of. Of each
// segment one pass to warm up, then ROUNDS; segments that share their Code and are fed alike get
// one time, the shortest of all their passes: what else the machine does only makes them longer.
// backward_weight_s is what a whole backward takes over its first half (split_backward.h). Throws
// Error{kInput} when a segment fails. REQUIRES: ROUNDS > 0, the CPU.
[[nodiscard]] std::vector<SegmentTimes> measure_times(const SegmentedModel& model,
                                                      const std::vector<c10::IValue>& arguments,
                                                      int rounds);

}  // namespace dslaunch
