// A Link between ranks of one host: messages pass through rings in the host's arena, copied in by
// the sender and out by the receiver. Data path: arena, host group -> host link -> stage link.
// Threads: as for Link.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"

namespace dslaunch::runtime {

struct HostLinkPlace {
    int node = 0;                  // this rank's number on the link
    std::vector<int> local_ranks;  // the local rank of each number; -1: not on this host
};

// Adds the memory by which each local rank receives on a link of NODES.
[[nodiscard]] SliceId add_host_link(ArenaLayout& layout, int nodes);

// Makes a rank's only end. Its abort() poisons the group. All local ranks share ARENA and GROUP,
// which must outlive the link.
[[nodiscard]] std::unique_ptr<Link> make_host_link(const Arena& arena, SliceId slice,
                                                   HostGroup& group, HostLinkPlace place,
                                                   Duration time_limit);

}  // namespace dslaunch::runtime
