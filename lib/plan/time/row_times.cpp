#include "plan/time/row_times.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::plan {

std::vector<SegmentTimes> times_for_rows(std::span<const RowTimes> measured, int64_t rows) {
    DSL_CHECK(measured.size() == 1 || measured.size() == 2, "{} sizes", measured.size());
    const RowTimes& first = measured.front();
    const RowTimes& last = measured.back();
    std::vector<SegmentTimes> times = first.times;
    for (size_t s = 0; s < times.size(); ++s) {
        for (double SegmentTimes::*field :
             {&SegmentTimes::forward_s, &SegmentTimes::backward_input_s,
              &SegmentTimes::backward_weight_s}) {
            const double one = first.times[s].*field;
            const double slope =
                measured.size() == 1
                    ? one / static_cast<double>(first.rows)
                    : (last.times[s].*field - one) / static_cast<double>(last.rows - first.rows);
            times[s].*field = std::max(0.0, one + slope * static_cast<double>(rows - first.rows));
        }
    }
    return times;
}

}  // namespace dslaunch::plan
