// The times of segments for micro batch sizes that were not measured. Data path: measured times ->
// [here] -> step forecasts of `dslaunch plan --tune`. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The times of all segments for a micro batch of ROWS rows.
struct RowTimes {
    int64_t rows = 1;
    std::vector<SegmentTimes> times;
};

// Returns the times for ROWS rows. If MEASURED has one size, times are proportional to the rows. If
// it has two sizes, times lie on the line through both measurements, but are never below 0.
// REQUIRES: one or two different sizes, with the same number of segments.
[[nodiscard]] std::vector<SegmentTimes> times_for_rows(std::span<const RowTimes> measured,
                                                       int64_t rows);

}  // namespace dslaunch::plan
