// A Link over ProcessGroupGloo's send and receive. Internal to this folder, because it includes
// LibTorch types.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "base/clock.h"
#include "runtime/comm/link.h"
#include "runtime/comm_gloo/stream_choice.h"

namespace dslaunch::runtime {

// This node's place on a link, and its connections.
struct GlooLinkOptions {
    int node = 0;
    int node_count = 1;
    std::string address;  // address to bind; unused if GLOO_SOCKET_IFNAME is set
    Duration time_limit{};
    // The number of connections to each other node, each with a thread of its own. Long messages
    // are divided among them. REQUIRES: at least 1, the same on all nodes.
    int streams = 1;
};

// Connects to all other nodes. Throws Error{kPeerLost} if a node is lost, and Error{kHang} if it
// does not connect in time.
[[nodiscard]] std::unique_ptr<Link> make_gloo_link(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const GlooLinkOptions& options);

// Measures the number of streams that use the full rate of a link between the nodes of OPTIONS. All
// nodes call it; it takes some tenths of a second. Throws the errors of make_gloo_link and of
// Link::transfer.
[[nodiscard]] StreamChoice measure_streams(const c10::intrusive_ptr<c10d::Store>& store,
                                           const GlooLinkOptions& options);

}  // namespace dslaunch::runtime
