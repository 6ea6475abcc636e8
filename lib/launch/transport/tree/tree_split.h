// The division of a job's hosts among relays (launch/transport/tree/relay.h): pure numbers, so that
// the same tree comes out wherever it is asked for. Each relay divides what it was given by the
// same rule.
#pragma once

#include <cstddef>
#include <vector>

namespace dslaunch::launch {

struct HostRange {
    size_t first = 0;
    size_t hosts_count = 0;

    bool operator==(const HostRange&) const = default;
};

// Levels of connections until the last of HOSTS_COUNT hosts when nobody opens more than FANOUT: 1
// when all are reached directly. REQUIRES: fanout >= 2.
[[nodiscard]] size_t tree_depth(size_t hosts_count, size_t fanout);

// The hosts to be connected to: consecutive ranges that hold each of HOSTS_COUNT hosts once. The
// first host of a range with several starts agents on the others. Not more ranges than FANOUT, and
// only as many as keep the tree as flat as FANOUT can make it, so that every level has about the
// same work; their sizes differ by at most one. REQUIRES: fanout >= 2.
[[nodiscard]] std::vector<HostRange> split_tree(size_t hosts_count, size_t fanout);

}  // namespace dslaunch::launch
