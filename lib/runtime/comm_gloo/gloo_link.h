// A Link over ProcessGroupGloo's send and receive. Internal to this folder: it shows LibTorch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/clock.h"
#include "runtime/comm/link.h"

namespace dslaunch::runtime {

struct GlooLinkOptions {
    int node = 0;
    int node_count = 1;
    std::string address;  // address to bind; unused if GLOO_SOCKET_IFNAME is set
    Duration time_limit{};
};

// Connects to all other nodes. Throws Error{kPeerLost} or {kHang}.
[[nodiscard]] std::unique_ptr<Link> make_gloo_link(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const GlooLinkOptions& options);

}  // namespace dslaunch::runtime
