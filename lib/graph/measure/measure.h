// The costs of a segmented model: bytes alive at each cut, bytes that autograd keeps, the most that
// a segment's forward and backward take, FLOPs. Found by one forward pass over a micro batch and
// the backward of one segment of each sort, before the first step. Feeds
// plan/model/model_info.h.
#pragma once

#include <vector>

#include "graph/segment/segment.h"
#include "plan/model/model_info.h"

namespace dslaunch::graph {

// Facts of the value that forward returns as its loss.
struct LossFacts {
    int64_t numel = 1;
    bool trains = true;  // true: a gradient leads from it to a trainable parameter
};

// Measures SEGMENTED. ARGUMENTS are one micro batch of the run, as the data give it, on SEGMENTED's
// device. Buffers are there and keep their values. Parameters are brought there a segment at a
// time; in half precision fp32 ones in SEGMENTED's compute dtype. Throws Error{kInput} when a
// segment fails. (LibTorch's meta device would need no memory and arithmetic, but half of the
// operators have meta kernels only in Python.) SPLIT_BACKWARD: runs backwards in two halves, and
// also measures the memory kept between them. LOSS, unless null, gets the facts of the loss.
[[nodiscard]] plan::ModelInfo measure(const SegmentedModel& segmented,
                                      const std::vector<IValue>& arguments,
                                      bool split_backward = false, LossFacts* loss = nullptr);

// Finds by a trial pass the buffers that segments change in their forward, such as BatchNorm's
// averages, which no schema shows. Returns the buffers, ascending and by segment, whose values
// differ after the segment's forward of ARGUMENTS, a micro batch as in measure(). Buffers are
// restored. Throws Error{kInput} when a segment fails.
[[nodiscard]] std::vector<std::vector<int>> moved_buffers(const SegmentedModel& segmented,
                                                          const std::vector<IValue>& arguments);

}  // namespace dslaunch::graph
