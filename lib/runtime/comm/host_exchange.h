// What one bridge does with the same bridge of the other hosts: ordered sums, broadcast and gather
// over a Link. Where it stands: collectives -> host exchange -> link. Threads: one at a time, abort
// from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "runtime/comm/link.h"
#include "runtime/comm/topology.h"

namespace dslaunch {

// Each call throws what Link::transfer throws, and is made by the same bridge of all hosts in the
// same order.
class HostExchange {
  public:
    // REQUIRES: at least two hosts.
    HostExchange(const Topology& topology, std::unique_ptr<Link> link);

    // PIECES, one after the other [numel] fp32, become the sum over hosts by node rank, times
    // scale. Host q sums sub-stripe q of all and sends it back: each host sends 2 (H - 1) / H of
    // the stripe.
    void reduce(const std::vector<std::span<float>>& pieces, int64_t numel, float scale);
    // BYTES of node 0 to all.
    void broadcast(std::span<std::byte> bytes);
    // One string from each host, by node rank.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);

    void abort(std::string_view text) { link_->abort(text); }
    [[nodiscard]] const Traffic& traffic() const { return link_->traffic(); }

  private:
    [[nodiscard]] Range sub_stripe(int64_t numel, int node) const;
    void scatter(int64_t numel);
    void sum(int64_t numel, float scale);
    void gather(int64_t numel);
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives);

    int node_count_;
    int node_;
    std::unique_ptr<Link> link_;
    uint32_t tag_ = 0;           // grows by one with each transfer, equally on all hosts
    std::vector<float> stripe_;  // this host's sums, then the result; grows to the largest stripe
    std::vector<std::vector<float>> incoming_;  // by node: its terms of this host's sub-stripe
};

}  // namespace dslaunch
