// The costs of a segmented model: the bytes alive at each cut, the bytes that autograd saves, the
// peak memory of each segment's forward and backward, and FLOPs. They are found before the first
// step, by one forward pass over a micro batch and the backward of one segment of each sort.
// plan/model/model_info.h describes the result.
#pragma once

#include <vector>

#include "graph/segment/segmented_model.h"
#include "plan/model/model_info.h"

namespace dslaunch::graph {

// Facts about the value that forward returns as its loss.
struct LossFacts {
    int64_t numel = 1;
    bool trains = true;  // true: a gradient leads from the loss to a trainable parameter
};

// Measures SEGMENTED. ARGUMENTS: one micro batch of the run, as the data provide it, on SEGMENTED's
// device. Buffers must be on that device, and keep their values. Parameters are moved there one
// segment at a time; in half precision, fp32 parameters are cast to SEGMENTED's compute dtype. If
// SPLIT_BACKWARD, runs each backward in two halves, and also measures the memory that stays in use
// between the halves. LOSS, unless null, is set to the facts of the loss. Throws Error{kInput} if a
// segment fails. (LibTorch's meta device would need no memory and no arithmetic, but half of the
// operators have meta kernels only in Python.)
[[nodiscard]] plan::ModelInfo measure(const SegmentedModel& segmented,
                                      const std::vector<IValue>& arguments,
                                      bool split_backward = false, LossFacts* loss = nullptr);

// Runs a trial pass on ARGUMENTS, a micro batch as in measure(). Returns for each segment the
// buffers that its forward writes or changes, in ascending order. These include buffers that
// forward changes although no operator's schema shows it, such as BatchNorm's averages. Restores
// the buffers. Throws Error{kInput} if a segment fails.
[[nodiscard]] std::vector<std::vector<int>> moved_buffers(const SegmentedModel& segmented,
                                                          const std::vector<IValue>& arguments);

}  // namespace dslaunch::graph
