// A Link between ranks of one host. Messages pass through ring buffers in the host's arena: the
// sender copies them in, the receiver copies them out. Data path: arena, host group -> host link ->
// stage link. Threads: the rules of Link apply.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"

namespace dslaunch::runtime {

// A rank's place on a link within a host.
struct HostLinkPlace {
    int node = 0;                  // this rank's number on the link
    std::vector<int> local_ranks;  // local rank of each node; -1 for a node on another host
};

// Adds the memory of a link with NODES nodes: each local rank receives its messages there.
[[nodiscard]] SliceId add_host_link(ArenaLayout& layout, int nodes);

// Makes a rank's end of the link. Call it once per rank. Its abort() poisons the group. All local
// ranks share ARENA and GROUP, which must outlive the link.
[[nodiscard]] std::unique_ptr<Link> make_host_link(const Arena& arena, SliceId slice,
                                                   HostGroup& group, HostLinkPlace place,
                                                   Duration time_limit);

}  // namespace dslaunch::runtime
