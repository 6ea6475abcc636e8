// Finds the scale and the minimum of a group of numbers, for which rounding the numbers to integers
// loses least. Data path: numbers -> [here] -> quantize.cpp. Pure; any thread. Sums run in eight
// lanes with a fixed order, so that results are the same on all processors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/half_bits.h"

namespace dslaunch::storage {

inline constexpr size_t kLanes = 8;

// A group of N numbers and their importance.
struct NumberGroup {
    const float* numbers;
    const float* importance;  // above 0
    size_t numel;             // a multiple of kLanes
};

// Element i becomes scale * code - minimum.
struct GroupFit {
    float scale = 0;
    float minimum = 0;
};

// The integers that a code may be.
struct CodeRange {
    float low;
    float high;
};

inline float code_of(float value, CodeRange range) {
    return std::min(std::max(value, range.low), range.high) + kWholeShift - kWholeShift;
}

// Returns the weighted squared error of GROUP with FIT. Codes are the nearest ones in RANGE.
[[nodiscard]] double error_of(const NumberGroup& group, const GroupFit& fit, CodeRange range);
// Computes the same error as error_of(), and also writes the codes.
double write_codes(const NumberGroup& group, const GroupFit& fit, CodeRange range, int16_t* codes);

// Returns the scale with the least error found; the minimum is 0. The scale may be negative.
[[nodiscard]] GroupFit fit_scale(const NumberGroup& group, CodeRange range);
// Returns the scale and the minimum with the least error found. If IS_FREE, the minimum may be
// below 0. REQUIRES: RANGE begins at 0.
[[nodiscard]] GroupFit fit_both(const NumberGroup& group, CodeRange range, bool is_free);

// Return the scale and minimum of plain rounding. They follow from the largest number, or from the
// largest and the smallest number, without a search.
[[nodiscard]] GroupFit plain_scale(const NumberGroup& group, CodeRange range);
[[nodiscard]] GroupFit plain_both(const NumberGroup& group, CodeRange range, bool is_free);

}  // namespace dslaunch::storage
