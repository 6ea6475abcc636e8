// The middle of a list of numbers. Pure.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace dslaunch {

// The median of an even number of values: the lower or the upper one of the two in the middle, or
// their mean.
enum class Middle { kLower, kUpper, kMean };

// Returns the median of VALUES. REQUIRES: VALUES is not empty and contains no NaN.
[[nodiscard]] inline double median_of(std::vector<double> values, Middle middle) {
    DSL_CHECK(!values.empty(), "there is no median of an empty list");
    const bool is_odd = values.size() % 2 == 1;
    const auto upper = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), upper, values.end());
    if (is_odd || middle == Middle::kUpper) return *upper;
    const double lower = *std::max_element(values.begin(), upper);
    return middle == Middle::kLower ? lower : (lower + *upper) / 2;
}

}  // namespace dslaunch
