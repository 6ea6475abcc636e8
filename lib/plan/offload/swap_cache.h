// The swap buffers between memory and disk as a cache of chunks: the bytes that other rules of
// eviction, and other numbers of buffers, would move in a step. Data path: step plan -> swap
// trace -> `dslaunch plan --compare cache`. Pure. Source of the best rule: Belady 1966; a plan
// knows which chunk is needed last.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The chunk that gives up its buffer: the one used longest ago, used least often since it came,
// that came first, or that is needed last.
enum class EvictionRule { kLru, kLfu, kFifo, kBelady };
inline constexpr EvictionRule kEvictionRules[] = {EvictionRule::kLru, EvictionRule::kLfu,
                                                  EvictionRule::kFifo, EvictionRule::kBelady};
[[nodiscard]] std::string_view eviction_rule_name(EvictionRule rule);

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

// The traffic of a step once the buffers have settled; a mean if steps differ.
struct SwapTraffic {
    double uses = 0;
    double hits = 0;  // uses for which nothing was read
    double read_bytes = 0;
    double written_bytes = 0;
};

// BUFFERS chunks are held; a changed one is written when it gives up its buffer. Chunks move when
// they are needed, none ahead. Belady's rule is offline.
[[nodiscard]] SwapTraffic simulate_swaps(const SwapTrace& trace, EvictionRule rule,
                                         int64_t buffers);

// Returns the traffic of PLAN itself: its buffers hold the chunks in turn, and those of the last
// turns stay until the next step.
[[nodiscard]] SwapTraffic planned_swaps(const StepPlan& plan);

}  // namespace dslaunch::plan
