// A link joins one rank of each host: bytes go to and fro, by tag, in order. Only bridges open one.
// Where it stands: rendezvous -> link -> collectives. Implementations: in-process (tests, pretended
// hosts) and Gloo. Threads: transfer by one thread at a time, abort from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/comm/collectives.h"

namespace dslaunch {

// To NODE; arrives at the receive that names this node and the same tag.
struct LinkSend {
    int node = 0;
    uint32_t tag = 0;
    std::span<const std::byte> bytes;
};
struct LinkReceive {
    int node = 0;
    uint32_t tag = 0;
    std::span<std::byte> bytes;
};

class Link {
  public:
    virtual ~Link() = default;

    // Starts all of them at once and returns when all are done; nothing is buffered, so a send ends
    // with its receive. Throws Error{kPeerLost} naming the node when a connection is lost or abort
    // was called, Error{kHang} after the link's time limit. REQUIRES: no empty span; a tag is used
    // once per pair of nodes at a time; equal lengths on both sides; no node is this one.
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives) {
        run(sends, receives);
        for (const LinkSend& send : sends) traffic_.sent += {std::ssize(send.bytes)};
        for (const LinkReceive& receive : receives)
            traffic_.received += {std::ssize(receive.bytes)};
    }
    // Ends a transfer under way, and all later ones, with TEXT. Does not block.
    virtual void abort(std::string_view text) = 0;
    // Payload only. By the thread that transfers.
    [[nodiscard]] const Traffic& traffic() const { return traffic_; }

  protected:
    virtual void run(const std::vector<LinkSend>& sends,
                     const std::vector<LinkReceive>& receives) = 0;

  private:
    Traffic traffic_;
};

}  // namespace dslaunch
