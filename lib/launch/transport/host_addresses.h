// Planned nodes become the addresses at which a transport starts agents. Pure.
#pragma once

#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// One for each of NODES, in their order.
[[nodiscard]] inline std::vector<HostAddress> addresses_of(const std::vector<PlannedNode>& nodes) {
    std::vector<HostAddress> hosts;
    for (const PlannedNode& node : nodes) {
        hosts.push_back({node.name, node.user, node.port, node.address});
    }
    return hosts;
}

}  // namespace dslaunch::launch
