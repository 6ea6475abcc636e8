// Buffers that several uses of a step share one after the other: gradient buckets at stages 2 and
// 3, gathered parameters at stage 3. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch::plan {

// One use, from position BEGIN to position END of the step, both included.
struct SlotUse {
    int64_t numel = 0;
    int begin = 0;
    int end = 0;
};

struct Slots {
    std::vector<int> slot_of_use;
    std::vector<int64_t> numel;  // of each slot: its largest use
};

// Gives each use a slot that no other use holds at the same time, and keeps the elements of all
// slots together small. Of the slots that are free the one given back last is taken only when
// nothing else is: who still reads it has a use's time to finish. REQUIRES: uses by begin.
[[nodiscard]] Slots assign_slots(std::span<const SlotUse> uses);

}  // namespace dslaunch::plan
