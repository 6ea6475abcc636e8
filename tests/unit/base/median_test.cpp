#include "base/median.h"

#include "support/catch.h"

using namespace dslaunch;

TEST_CASE("the median is the middle value, and of two middle values the one that is asked for") {
    for (const Middle middle : {Middle::kLower, Middle::kUpper, Middle::kMean}) {
        CHECK(median_of({7}, middle) == 7);
        CHECK(median_of({9, -1, 4}, middle) == 4);
        CHECK(median_of({2, 2, 2, 2}, middle) == 2);
    }
    CHECK(median_of({4, 1, 3, 2}, Middle::kLower) == 2);
    CHECK(median_of({4, 1, 3, 2}, Middle::kUpper) == 3);
    CHECK(median_of({4, 1, 3, 2}, Middle::kMean) == 2.5);
    CHECK(median_of({8, -6}, Middle::kMean) == 1);
}
