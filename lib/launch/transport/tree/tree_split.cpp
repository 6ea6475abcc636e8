#include "launch/transport/tree/tree_split.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::launch {
namespace {

// True: RADIX connections from each give HOSTS_COUNT hosts a place within DEPTH levels: radix +
// radix^2 + … of them are enough.
bool has_room(size_t hosts_count, size_t radix, size_t depth) {
    size_t room = 0;
    size_t level = 1;
    for (size_t i = 0; i < depth && room < hosts_count; ++i) {
        level *= std::min(radix, hosts_count);  // no more than is asked for: no overflow
        room += level;
        level = std::min(level, hosts_count);
    }
    return room >= hosts_count;
}

}  // namespace

size_t tree_depth(size_t hosts_count, size_t fanout) {
    DSL_CHECK(fanout >= 2, "a tree with a fan-out of {}", fanout);
    size_t depth = 1;
    while (!has_room(hosts_count, fanout, depth)) ++depth;
    return depth;
}

std::vector<HostRange> split_tree(size_t hosts_count, size_t fanout) {
    const size_t depth = tree_depth(hosts_count, fanout);
    size_t ranges_count = hosts_count;
    if (depth > 1) {
        ranges_count = 2;
        while (!has_room(hosts_count, ranges_count, depth)) ++ranges_count;
    }
    std::vector<HostRange> ranges;
    size_t first = 0;
    for (size_t i = 0; i < ranges_count; ++i) {
        const size_t end = (i + 1) * hosts_count / ranges_count;
        ranges.push_back({first, end - first});
        first = end;
    }
    return ranges;
}

}  // namespace dslaunch::launch
