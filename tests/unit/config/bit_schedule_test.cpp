// The bits of a weight over the updates of a run: config/run/bit_schedule.h.
#include "config/run/bit_schedule.h"

#include <limits>
#include <utility>
#include <vector>

#include "support/catch.h"

namespace dslaunch::config {
namespace {

TEST_CASE("bits fall after a period, then after twice as long, as in DeepSpeed's code") {
    // From 8 to 4 bits with a period of 3: roundings 3, 6, 12 and 24 take a bit each.
    const BitSchedule schedule{false, 8, 4, 3, 0, 0};
    for (const auto& [updates, bits] : std::vector<std::pair<int64_t, int64_t>>{{0, 8},
                                                                                {1, 8},
                                                                                {2, 7},
                                                                                {4, 7},
                                                                                {5, 6},
                                                                                {10, 6},
                                                                                {11, 5},
                                                                                {22, 5},
                                                                                {23, 4},
                                                                                {1000, 4},
                                                                                {-1, 4}}) {
        INFO("after " << updates << " updates");
        CHECK(bits_after(schedule, updates).bits == bits);
    }
    // With an offset, rounding begins one update later: DeepSpeed rounds in the update that follows
    // the one with the offset's number.
    BitSchedule later = schedule;
    later.offset = 5;
    CHECK(bits_after(later, 4).bits == 0);
    CHECK(bits_after(later, 5).bits == 0);
    CHECK(bits_after(later, 6).bits == 8);
    CHECK(bits_after(later, 8).bits == 7);
    // In the forward pass: target_bits from the offset on.
    later.is_fixed = true;
    CHECK(bits_after(later, 4).bits == 0);
    CHECK(bits_after(later, 5).bits == 4);
    // A period of 0 or 1 takes a bit with the first rounding.
    CHECK(bits_after({false, 8, 2, 0, 0, 0}, 0).bits == 7);
    CHECK(bits_after({false, 8, 2, 0, 0, 0}, 3).bits == 4);
    CHECK(bits_after({false, 8, 2, 1, 0, 0}, 3).bits == 5);
    CHECK(bits_after({false, 8, 1, std::numeric_limits<int64_t>::max(), 0, 0}, 10).bits == 8);
}

TEST_CASE("the target is reached after the updates that the schedule itself needs") {
    for (const int64_t start : {3, 8, 16})
        for (const int64_t target : {1, 2, 8})
            for (const int64_t period : {0, 1, 2, 7})
                for (const int64_t offset : {0, 1, 5}) {
                    const BitSchedule schedule{
                        .start = start, .target = target, .period = period, .offset = offset};
                    if (start <= target) continue;
                    const int64_t updates = updates_to_target(schedule);
                    INFO(start << " to " << target << ", period " << period << ", offset " << offset
                               << ": " << updates);
                    CHECK(bits_after(schedule, updates).bits == target);
                    if (updates > 0) CHECK(bits_after(schedule, updates - 1).bits != target);
                }
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    CHECK(updates_to_target({.start = 8, .target = 1, .period = kMost}) == kMost - 1);
    CHECK(updates_to_target({.start = 8, .target = 1, .period = kMost, .offset = 3}) == kMost);
    CHECK(updates_to_target({.is_fixed = true, .start = 8, .target = 4, .offset = 3}) == 3);
}

}  // namespace
}  // namespace dslaunch::config
