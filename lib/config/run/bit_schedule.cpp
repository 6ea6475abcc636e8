#include "config/run/bit_schedule.h"

#include <algorithm>

namespace dslaunch::config {
namespace {

// The state of a number of bits that decreases from `start` to `target`, one bit at a time.
struct Fall {
    int64_t bits;
    int64_t period;
    int64_t rounding = 0;  // that took the last bit

    // Returns the index of the first rounding that uses one bit less.
    [[nodiscard]] int64_t next() const {
        return std::max(rounding == INT64_MAX ? INT64_MAX : rounding + 1, period);
    }
    void take() {
        rounding = next();
        period = period > INT64_MAX / 2 ? INT64_MAX : period * 2;
        --bits;
    }
};

}  // namespace

BitState bits_after(const BitSchedule& schedule, int64_t updates) {
    const bool is_over = updates < 0;
    if (!is_over && updates < schedule.offset) return {};
    if (schedule.is_fixed || is_over) return {schedule.target, 0};
    // Counts the roundings as DeepSpeed does. If the offset is 0, the weights are rounded before
    // the first forward pass and at each update. Otherwise, update `offset` switches rounding on,
    // and the weights are rounded at each later update.
    const int64_t roundings = schedule.offset == 0 ? updates + 1 : updates - schedule.offset;
    if (roundings == 0) return {};
    Fall fall{schedule.start, schedule.period};
    while (fall.bits > schedule.target && fall.next() <= roundings) fall.take();
    BitState state{fall.bits, 0};
    if (schedule.change_ratio > 0)
        state.unrounded = std::max(
            0.0, 1 - schedule.change_ratio * static_cast<double>(roundings - fall.rounding));
    return state;
}

int64_t updates_to_target(const BitSchedule& schedule) {
    if (schedule.is_fixed) return schedule.offset;
    Fall fall{schedule.start, schedule.period};
    while (fall.bits > schedule.target && fall.rounding < INT64_MAX) fall.take();
    const int64_t roundings = std::max<int64_t>(fall.rounding, 1);  // the first one rounds
    if (schedule.offset == 0) return roundings - 1;
    return roundings > INT64_MAX - schedule.offset ? INT64_MAX : schedule.offset + roundings;
}

}  // namespace dslaunch::config
