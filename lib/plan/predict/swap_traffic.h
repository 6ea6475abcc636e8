// The traffic between swap buffers and disk: a plan's, and the least of any order of eviction. Data
// path: step plan -> swap traffic -> `dslaunch plan --compare cache`. Pure. Source of the least:
// Belady 1966, since a plan knows which chunk is needed last.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// An update needs its chunk in a buffer and changes it. A gather needs the chunk's parameters only,
// takes them from the buffer that holds them, and else from the disk without a buffer.
struct ChunkUse {
    int chunk = 0;
    bool update = false;
};

// UNITS: bytes on disk, as packed there.
struct ChunkTraffic {
    int64_t gathered = 0;  // bytes read for a gather
    int64_t read = 0;      // bytes read for an update
    int64_t written = 0;
};

struct SwapTrace {
    std::vector<ChunkUse> uses;         // uses of one step, in the order of the plan
    std::vector<ChunkTraffic> traffic;  // by chunk
};
[[nodiscard]] SwapTrace swap_trace(const StepPlan& plan, const ChunkFormat& format);

// The traffic of one step, without sums of gradients, which pass through buffers of their own.
struct SwapTraffic {
    double uses = 0;
    double hits = 0;  // uses for which nothing was read
    double read_bytes = 0;
    double written_bytes = 0;
};

// Returns the traffic that PLAN's instructions cause.
[[nodiscard]] SwapTraffic planned_swaps(const StepPlan& plan, const ChunkFormat& format);

// Returns the traffic, a mean over steps, if the chunk that is needed last gives up its buffer.
// BUFFERS chunks are held; a changed one is written when it gives up its buffer. Chunks move when
// they are needed, none ahead.
[[nodiscard]] SwapTraffic least_swaps(const SwapTrace& trace, int64_t buffers);

}  // namespace dslaunch::plan
