// The exchange of one bridge with the same bridge of the other hosts: ordered sums, broadcast and
// gather over a Link. Data path: collectives -> host exchange -> link. Threads: one at a time,
// abort from any. A reduction to owners adds one chunk in a thread of its own while the next
// travels.
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
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

// fp32 elements that follow each other in a stream, as they lie in memory.
using Pieces = std::vector<std::span<float>>;

// Each call throws the errors of Link::transfer. The same bridge of all hosts makes it, in the same
// order.
class HostExchange {
  public:
    // REQUIRES: at least two hosts.
    HostExchange(const Topology& topology, std::unique_ptr<Link> link);

    // Replaces PIECES, [numel] fp32 one after the other, by the sum over hosts by node rank, times
    // SCALE. Host q sums sub-stripe q of all and sends it back, so each host sends 2 (H - 1) / H of
    // the stripe.
    void reduce(const Pieces& pieces, int64_t numel, float scale);
    // STREAMS[q] are the pieces of this host's sums that host q gets. Streams are equally long on
    // all hosts. The pieces of this host's own stream become the sum over hosts by node rank, times
    // SCALE. Each other stream is sent to its host. REQUIRES: streams overlap only in a common
    // beginning.
    void reduce_to_owners(const std::vector<Pieces>& streams, float scale);
    // PIECES[q] are host q's, and the others get them in place. REQUIRES: the same number of pieces
    // of equal lengths on all hosts, none of them empty.
    void gather(const std::vector<std::vector<std::span<std::byte>>>& pieces);
    // Sends SENDS[q] to host q, and gets RECEIVES[q] from it. This host's own are left alone, as
    // are empty ones. REQUIRES: equal lengths at both ends.
    void swap(std::span<const std::span<const std::byte>> sends,
              std::span<const std::span<std::byte>> receives);
    // Copies BYTES of node 0 to all.
    void broadcast(std::span<std::byte> bytes);
    // Returns one string from each host, by node rank.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);
    // Sends MINE to the next host by node rank, and returns what the one before sent. REQUIRES:
    // equal lengths.
    [[nodiscard]] std::string shift(std::string_view mine);

    void abort(std::string_view text) { link_->abort(text); }
    [[nodiscard]] Traffic traffic() const { return link_->traffic(); }

  private:
    [[nodiscard]] Range sub_stripe(int64_t numel, int node) const;
    void scatter(int64_t numel);
    void sum(int64_t numel, float scale);
    void gather_sums(int64_t numel);
    using Terms = std::vector<std::vector<float>>;  // one per node; this host's stays empty
    void exchange_terms(const std::vector<Pieces>& streams, const Range& chunk, Terms& incoming);
    void add_terms(const Pieces& own, float scale) const;
    // The messages carry tag_ and the tags after it, TAGS_USED of them, equally many on all hosts.
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
                  uint32_t tags_used = 1);

    int node_count_;
    int node_;
    std::unique_ptr<Link> link_;
    uint32_t tag_ = 0;           // tag of the next transfer; it grows equally on all hosts
    std::vector<float> stripe_;  // this host's sums, then the result; grows to the largest stripe
    Terms incoming_;             // terms of the chunk that this host sums
    Terms next_incoming_;        // terms of the next chunk, received while incoming_ is added
    Terms outgoing_;             // a chunk of each node's stream, if it lies in pieces
};

}  // namespace dslaunch::runtime
