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

// ARGUMENTS are one micro batch of the run, as the data give it, on SEGMENTED's device. Buffers,
// which are there, keep their values; parameters are brought there a segment at a time, in half
// precision the fp32 ones in the compute dtype that SEGMENTED was lowered for. Throws
// Error{kInput} when a segment fails. (LibTorch's meta device would need no memory and arithmetic,
// but half of the operators have their meta kernels in Python only.) SPLIT_BACKWARD: backwards are
// run in two halves, and the memory kept between the halves is measured too. LOSS, if there is one,
// becomes what is found of the loss.
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
