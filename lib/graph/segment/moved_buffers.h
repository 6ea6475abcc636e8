// Which of a model's buffers its segments change in their forward, as BatchNorm's averages are:
// seen in a trial pass, for no schema shows it. Stands beside measure.h.
#pragma once

#include <vector>

#include "graph/segment/segment.h"

namespace dslaunch::graph {

// By segment the buffers, ascending, that are other numbers after its forward of ARGUMENTS, a micro
// batch as measure() has it; buffers are left as they were. Throws Error{kInput} when a segment
// fails.
[[nodiscard]] std::vector<std::vector<int>> moved_buffers(
    const SegmentedModel& model, const std::vector<c10::IValue>& arguments);

}  // namespace dslaunch::graph
