// A link joins one rank of each node. It sends bytes in both directions, by tag, in order. Nodes
// are hosts, joined by their bridges, or the stages of a pipeline. Data path: rendezvous -> link ->
// collectives, stage link. Implementations: in-process (tests, simulated hosts), host link and
// Gloo. Threads: any thread may use a link, with tags of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/comm/traffic.h"

namespace dslaunch::runtime {

// A message to NODE. It is received there by the LinkReceive that has the same tag and names the
// sender.
struct LinkSend {
    int node = 0;
    uint32_t tag = 0;
    std::span<const std::byte> bytes;
};
// The memory for a message from NODE.
struct LinkReceive {
    int node = 0;
    uint32_t tag = 0;
    std::span<std::byte> bytes;
};

// A link between nodes; see the top of this file.
class Link {
  public:
    virtual ~Link() = default;

    // Starts all transfers at once and returns when all are done. Nothing is buffered, so a send is
    // not done before its receive. Throws Error{kPeerLost}, naming the node, if a connection is
    // lost or abort() was called, and Error{kHang} after the link's time limit. REQUIRES: no span
    // is empty; only one transfer at a time uses a tag between the same two nodes; lengths are
    // equal on both sides; no transfer names this node.
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives) {
        run(sends, receives);
        for (const LinkSend& send : sends)
            meter_.add(send.node, {Bytes{std::ssize(send.bytes)}, {}});
        for (const LinkReceive& receive : receives)
            meter_.add(receive.node, {{}, Bytes{std::ssize(receive.bytes)}});
    }
    // Ends the transfers under way, and all later ones, with an error that has TEXT. Does not
    // block.
    virtual void abort(std::string_view text) = 0;
    // Returns the traffic, payload only. A transfer counts under the kind of its thread's
    // TrafficScope.
    [[nodiscard]] TrafficTable traffic() const { return meter_.table(); }
    // Calls TrafficMeter::set_hosts.
    void set_hosts(std::vector<int> hosts) { meter_.set_hosts(std::move(hosts)); }

  protected:
    virtual void run(const std::vector<LinkSend>& sends,
                     const std::vector<LinkReceive>& receives) = 0;

  private:
    TrafficMeter meter_;
};

}  // namespace dslaunch::runtime
