#include "runtime/comm/ranks/node_ranges.h"

#include <algorithm>

#include "support/catch.h"
#include "support/ordered_sums.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::testing;

TEST_CASE("The parts of a node's stream join neighbours and leave out what is empty") {
    const std::vector<NodeRange> ranges = {{{0, 20}, 0},  {{20, 0}, 1}, {{20, 12}, 0},
                                           {{32, 40}, 1}, {{72, 8}, 0}, {{80, 5}, kEveryNode}};
    CHECK(tiled_numel(ranges, 2) == 85);
    CHECK(stream_part(ranges, 0, {0, 1}) == std::vector<Range>{{0, 32}, {72, 8}});
    // 40 elements in 2 parts: the border is a multiple of 16.
    CHECK(stream_part(ranges, 0, {0, 2}) == std::vector<Range>{{0, 32}});
    CHECK(stream_part(ranges, 0, {1, 2}) == std::vector<Range>{{72, 8}});
    CHECK(stream_part(ranges, kEveryNode, {0, 2}) == std::vector<Range>{{80, 5}});
    CHECK(stream_part(ranges, kEveryNode, {1, 2}).empty());
    CHECK(tiled_numel({}, 2) == 0);
}

TEST_CASE("Every element is in one part of its own node's stream, for any number of bridges") {
    for (const int64_t numel : {int64_t{0}, int64_t{3}, int64_t{100}, int64_t{1001}}) {
        for (uint32_t seed = 0; seed < 40; ++seed) {
            const std::vector<NodeRange> ranges = random_owners(numel, 3, seed);
            REQUIRE(tiled_numel(ranges, 3) == numel);
            for (const int bridges : {1, 2, 3, 5, 8}) {
                std::vector<int> owner(static_cast<size_t>(numel), -2);
                int64_t seen = 0;
                for (int node = kEveryNode; node < 3; ++node) {
                    for (int part = 0; part < bridges; ++part) {
                        for (const Range& range : stream_part(ranges, node, {part, bridges})) {
                            REQUIRE(range.numel > 0);
                            std::fill_n(owner.begin() + range.begin, range.numel, node);
                            seen += range.numel;
                        }
                    }
                }
                CHECK(seen == numel);
                for (const NodeRange& range : ranges)
                    CHECK(std::count(owner.begin() + range.range.begin,
                                     owner.begin() + range.range.end(),
                                     range.node) == range.range.numel);
            }
        }
    }
}
