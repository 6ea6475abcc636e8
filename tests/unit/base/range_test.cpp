#include "base/range.h"

#include "support/catch.h"

using namespace dslaunch;

TEST_CASE("Parts tile exactly for every number of parts and odd numels") {
    for (const int64_t numel : {0, 1, 7, 16, 17, 100, 1023, 4096, 100003}) {
        for (int parts = 1; parts <= 17; ++parts) {
            int64_t end = 0;
            for (int index = 0; index < parts; ++index) {
                const Range range = part_range(numel, {index, parts});
                REQUIRE(range.begin == end);
                REQUIRE(range.numel >= 0);
                // Borders are on cache lines. No part is larger than an even share, rounded up to a
                // cache line.
                REQUIRE((range.end() == numel || range.end() % 16 == 0));
                REQUIRE(range.numel <= (numel + parts - 1) / parts + 15);
                end = range.end();
            }
            REQUIRE(end == numel);
        }
    }
}
