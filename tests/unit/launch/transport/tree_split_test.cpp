#include "launch/transport/tree/tree_transport.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Returns the largest number of hosts that fit below one host with FANOUT connections each, in
// DEPTH levels: fanout + fanout^2 + … + fanout^depth.
size_t room(size_t fanout, size_t depth) {
    size_t power = 1;
    for (size_t i = 0; i < depth; ++i) power *= fanout;
    return fanout * (power - 1) / (fanout - 1);
}

// Walks the whole tree as relays do: at each level the first host of a range is reached, and
// divides the others of its range. REACHED counts how often each host is reached, by number.
size_t walk(size_t first, size_t hosts_count, size_t fanout, std::vector<int>& reached) {
    if (hosts_count == 0) return 0;
    const auto ranges = split_tree(hosts_count, fanout);
    REQUIRE(ranges.size() <= fanout);
    size_t next = 0;
    size_t deepest = 0;
    size_t smallest = hosts_count;
    size_t largest = 0;
    for (const HostRange& range : ranges) {
        REQUIRE(range.first == next);
        REQUIRE(range.hosts_count > 0);
        next += range.hosts_count;
        smallest = std::min(smallest, range.hosts_count);
        largest = std::max(largest, range.hosts_count);
        ++reached.at(first + range.first);
        deepest = std::max(deepest,
                           walk(first + range.first + 1, range.hosts_count - 1, fanout, reached));
    }
    REQUIRE(next == hosts_count);
    REQUIRE(largest - smallest <= 1);
    return deepest + 1;
}

}  // namespace

TEST_CASE("a tree reaches every host once, by evenly sized parts, and is as flat as can be") {
    for (const size_t fanout : {2, 3, 4, 16, 64}) {
        for (size_t hosts_count = 1; hosts_count <= 400; ++hosts_count) {
            INFO(hosts_count << " hosts, fan-out " << fanout);
            std::vector<int> reached(hosts_count, 0);
            const size_t depth = walk(0, hosts_count, fanout, reached);
            CHECK(std::count(reached.begin(), reached.end(), 1) ==
                  static_cast<std::ptrdiff_t>(hosts_count));
            CHECK(room(fanout, depth) >= hosts_count);
            if (depth > 1) CHECK(room(fanout, depth - 1) < hosts_count);
            CHECK(tree_depth(hosts_count, fanout) == depth);
        }
    }
}

TEST_CASE("as many hosts as the fan-out are reached directly") {
    for (const HostRange& range : split_tree(64, 64)) CHECK(range.hosts_count == 1);
    CHECK(split_tree(64, 64).size() == 64);
    CHECK(split_tree(1, 2) == std::vector<HostRange>{{0, 1}});
}

TEST_CASE("levels of a tree share the work: no more parts than its depth needs") {
    // 16 + 16 * 16 = 272 hosts fit in two levels, 15 + 15 * 15 = 240 do not hold 250.
    CHECK(split_tree(250, 64).size() == 16);
    // 31 + 31 * 31 = 992, 32 + 32 * 32 = 1056.
    CHECK(split_tree(1000, 64).size() == 32);
    CHECK(split_tree(65, 64).size() == 8);
    // Three levels, for which 2 + 4 + 8 are enough.
    CHECK(tree_depth(13, 3) == 3);
    CHECK(split_tree(13, 3) == std::vector<HostRange>{{0, 6}, {6, 7}});
    CHECK(split_tree(11, 3) == std::vector<HostRange>{{0, 3}, {3, 4}, {7, 4}});
}
