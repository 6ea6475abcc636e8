#include "plan/time/row_times.h"

#include <vector>

#include "support/catch.h"

using namespace dslaunch::plan;

TEST_CASE("one measured size scales with the rows, two lie on a line that never falls below 0") {
    const std::vector<RowTimes> one = {{4, {{8, 4, 2}}}};
    CHECK(times_for_rows(one, 2)[0].forward_s == 4);
    CHECK(times_for_rows(one, 8)[0].backward_weight_s == 4);
    // 1 + 2 rows, 3 rows, and 10 - 2 rows.
    const std::vector<RowTimes> two = {{1, {{3, 3, 8}}}, {4, {{9, 12, 2}}}};
    const SegmentTimes at_two = times_for_rows(two, 2)[0];
    CHECK(at_two.forward_s == 5);
    CHECK(at_two.backward_input_s == 6);
    CHECK(at_two.backward_weight_s == 6);
    CHECK(times_for_rows(two, 16)[0].forward_s == 33);
    CHECK(times_for_rows(two, 16)[0].backward_weight_s == 0);
}
