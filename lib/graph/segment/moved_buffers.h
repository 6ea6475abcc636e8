// The buffers that a model's segments change in their forward, such as BatchNorm's averages. A
// trial pass finds them, for no schema shows them. Used beside measure.h.
#pragma once

#include <vector>

#include "graph/segment/segment.h"

namespace dslaunch::graph {

// The buffers, ascending and by segment, whose values differ after the segment's forward of
// ARGUMENTS, a micro batch as in measure(). Buffers are restored. Throws Error{kInput} when a
// segment fails.
[[nodiscard]] std::vector<std::vector<int>> moved_buffers(
    const SegmentedModel& segmented, const std::vector<c10::IValue>& arguments);

}  // namespace dslaunch::graph
