// The traffic between swap buffers and disk: the traffic of a plan, and the least traffic that any
// order of eviction can reach. Data path: step plan -> swap traffic -> `dslaunch plan --compare
// cache`. Pure. Source of the least traffic: Belady 1966; his rule can be used because a plan shows
// which chunk is needed last.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// One use of a chunk. An update needs the chunk in a buffer and changes it. A gather needs only the
// chunk's parameters; it reads them from the buffer that holds the chunk, or otherwise from disk,
// without a buffer.
struct ChunkUse {
    int chunk = 0;
    bool update = false;
};

// UNITS: bytes on disk, in packed form.
struct ChunkTraffic {
    int64_t gathered = 0;  // bytes read for a gather
    int64_t read = 0;      // bytes read for an update
    int64_t written = 0;
};

// The uses of a step's chunks, and the traffic that a use of each chunk can cause.
struct SwapTrace {
    std::vector<ChunkUse> uses;         // uses of one step, in the order of the plan
    std::vector<ChunkTraffic> traffic;  // by chunk
};
// Returns the trace of PLAN, in which chunks have the form FORMAT.
[[nodiscard]] SwapTrace swap_trace(const StepPlan& plan, const ChunkFormat& format);

// The traffic of one step, without the sums of gradients, which use separate buffers.
struct SwapTraffic {
    double uses = 0;
    double hits = 0;  // number of uses for which nothing was read
    double read_bytes = 0;
    double written_bytes = 0;
};

// Returns the traffic that PLAN's instructions cause.
[[nodiscard]] SwapTraffic planned_swaps(const StepPlan& plan, const ChunkFormat& format);

// Returns the mean traffic of a step if each eviction chooses the chunk with the most distant next
// use. BUFFERS chunks are in memory at once. A changed chunk is written when it is evicted. Chunks
// are read when they are needed, not ahead.
[[nodiscard]] SwapTraffic least_swaps(const SwapTrace& trace, int64_t buffers);

}  // namespace dslaunch::plan
