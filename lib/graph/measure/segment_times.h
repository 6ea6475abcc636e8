// The times of each segment's forward and backward on this machine, for planning a pipeline. Each
// segment is measured a few times on one micro batch. Data path: segments -> [here] ->
// plan/time/machine_rates.h. Runs on the calling thread with as many threads as LibTorch has.
#pragma once

#include <functional>
#include <vector>

#include "graph/segment/segmented_model.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::graph {

// Options of measure_times().
struct SegmentTimesOptions {
    int rounds = 5;
    // The bytes that autograd saves for each segment. Consecutive segments are timed together until
    // these bytes and the bytes of their parameters add up to kTimedBytesMax. If empty, all
    // segments are timed together.
    std::vector<Bytes> kept = {};
    // A function that runs the backward that it gets as its argument. It may provide memory for the
    // gradients during this time. If empty, the backward runs directly.
    std::function<void(const std::function<void()>&)> around_backward = {};
};

// Consecutive segments are timed together until their parameters and activations have this many
// bytes. Most caches are smaller, so the parameters and activations have left the cache when a
// segment uses them again, as in a real step.
inline constexpr Bytes kTimedBytesMax = mib(512);

// Returns each segment's times. ARGUMENTS are as in measure(). Buffers keep their values; gradients
// are freed. Segments run in the order of a step: forward from the first to the last, then
// backward. One pass warms up; then ROUNDS passes are measured. Segments that share their Code and
// have similar inputs get the same time, the median of all their passes. backward_weight_s is the
// time of a whole backward minus the time of its first half (split_backward.h). Throws
// Error{kInput} if a segment fails. REQUIRES: rounds > 0; SEGMENTED is on the CPU.
[[nodiscard]] std::vector<plan::SegmentTimes> measure_times(const SegmentedModel& segmented,
                                                            const std::vector<IValue>& arguments,
                                                            const SegmentTimesOptions& options);

}  // namespace dslaunch::graph
