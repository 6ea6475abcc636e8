// Computes the number of bits to which weight_quantization rounds a group of weights. The number
// decreases during a run. Any thread may call the functions.
#pragma once

#include <cstdint>

namespace dslaunch::config {

// The rule for the number of bits after each update of a run.
struct BitSchedule {
    bool is_fixed = false;  // always `target`; false: from `start` to `target`
    int64_t start = 8;
    int64_t target = 8;
    int64_t period = 1;  // roundings before the first bit goes; then twice, four times, … as many
    int64_t offset = 0;  // updates before the first rounding
    double change_ratio = 0;  // decrease of the unrounded part with each rounding; 0: there is none
};

// The state of a schedule.
struct BitState {
    int64_t bits = 0;      // 0: not rounded yet
    double unrounded = 0;  // the part of the unrounded value in the result
};

// Returns SCHEDULE's state after UPDATES updates; if UPDATES is -1, the state after the last
// change.
[[nodiscard]] BitState bits_after(const BitSchedule& schedule, int64_t updates);

// Returns the number of updates after which SCHEDULE first has its target bits; INT64_MAX if the
// number does not fit in an int64_t.
[[nodiscard]] int64_t updates_to_target(const BitSchedule& schedule);

}  // namespace dslaunch::config
