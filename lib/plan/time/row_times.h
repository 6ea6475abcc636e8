// The times of segments for micro batches of other sizes than the measured ones. Data path:
// measured times -> [here] -> step forecasts of `dslaunch plan --tune`. Pure.
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

// Returns the times for ROWS rows. Times are proportional to the rows if MEASURED has one size, and
// lie on the line through both points if it has two, but are never below 0. REQUIRES: one or two
// different sizes, with the same number of segments.
[[nodiscard]] std::vector<SegmentTimes> times_for_rows(std::span<const RowTimes> measured,
                                                       int64_t rows);

}  // namespace dslaunch::plan
