// The times of each segment's forward and backward on this machine, for planning a pipeline:
// measured on one micro batch, a few times each. Data path: segments -> [here] ->
// plan/time/machine_rates.h.
// Runs on the calling thread with as many threads as LibTorch has.
#pragma once

#include <functional>
#include <vector>

#include "graph/segment/segment.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::graph {

struct SegmentTimesOptions {
    int rounds = 5;
    // The bytes that autograd keeps of each segment. Holds at a time the segments that keep
    // kTimedBytesMax with their parameters. Empty: all at once.
    std::vector<Bytes> kept = {};
    // Calls its argument, a backward, and may lend memory for gradients meanwhile. Empty: the
    // backward runs directly.
    std::function<void(const std::function<void()>&)> around_backward = {};
};

// Larger than any cache, so that a segment comes back to parameters and activations as a step does.
inline constexpr Bytes kTimedBytesMax = mib(512);

// Returns each segment's times. ARGUMENTS as in measure(). Buffers keep their values, gradients are
// freed. Segments run in a step's order, forward from the first to the last, then backward: one
// pass to warm up, then ROUNDS. Segments that share their Code and have like inputs get one time,
// the median of all their passes. backward_weight_s is the time of a whole backward less its first
// half's (split_backward.h). Throws Error{kInput} when a segment fails. REQUIRES: rounds > 0;
// SEGMENTED is on the CPU.
[[nodiscard]] std::vector<plan::SegmentTimes> measure_times(const SegmentedModel& segmented,
                                                            const std::vector<IValue>& arguments,
                                                            const SegmentTimesOptions& options);

}  // namespace dslaunch::graph
