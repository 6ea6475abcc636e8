#include "base/machine/zeroed_floats.h"

#include <algorithm>
#include <utility>

#include "support/catch.h"

using namespace dslaunch;

TEST_CASE("zeroed floats are all zero and writable, for any number of them") {
    for (const int64_t numel : {0, 1, 1023, 1025, (1 << 20) + 3}) {
        ZeroedFloats floats(numel);
        REQUIRE(floats.values().size() == static_cast<size_t>(numel));
        CHECK(std::ranges::all_of(floats.values(), [](float value) { return value == 0; }));
        std::ranges::fill(floats.values(), 1.5F);
        ZeroedFloats moved;
        moved = std::move(floats);
        CHECK(std::ranges::count(moved.values(), 1.5F) == numel);
    }
}
