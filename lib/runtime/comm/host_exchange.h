// The exchange of one bridge with the same bridge of the other hosts: ordered sums, broadcast and
// gather over a Link. Data path: collectives -> host exchange -> link. Threads: one at a time,
// abort from any. A reduction to owners adds one chunk in a thread of its own while the next
// travels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/comm/streams.h"
#include "runtime/comm/wire_coding.h"

namespace dslaunch::runtime {

// The sums of a host that another one owns: first what every host owns, then what only that one
// does and what may be packed.
struct OwnerStream {
    Pieces exact;
    Pieces packed;
};

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
    // The same where STREAMS[q].packed travels as CODING says. This host's own term is added as it
    // is. CODING.errors follow the packed elements of the streams of the other hosts, in order.
    void reduce_packed(const std::vector<OwnerStream>& streams, float scale,
                       const ReduceCoding& coding);
    // Replaces PIECES by the sum over hosts, times SCALE, that travels in 16 bits both ways and is
    // the same on all hosts. This host's own term is added as it is. REQUIRES: CODING.packing is of
    // 16 bits, without errors.
    void reduce_packed_for_all(const Pieces& pieces, float scale, const ReduceCoding& coding);
    // PIECES[q] are host q's, and the others get them in place. REQUIRES: the same number of pieces
    // of equal lengths on all hosts, none of them empty.
    void gather(const std::vector<std::vector<std::span<std::byte>>>& pieces);
    // The same for elements of CODING.dtype, packed. The pieces of all hosts, this one included,
    // become what was packed. Pieces need not be equal ones: the streams are equally long.
    void gather_packed(const std::vector<PiecesOf<std::byte>>& pieces, const GatherCoding& coding);
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
    [[nodiscard]] TrafficTable traffic() const { return link_->traffic(); }

  private:
    [[nodiscard]] Range sub_stripe(int64_t numel, int node) const;
    // The messages of one transfer.
    struct Moves {
        std::vector<LinkSend> sends;
        std::vector<LinkReceive> receives;
    };
    // The pieces of chunk C of a node's sub-stripe.
    using PartOfStripe = std::function<Pieces(int node, int64_t c)>;
    void add_scatter(int64_t c, const PartOfStripe& part, Moves& moves);
    void add_gather(int64_t c, const PartOfStripe& part, Moves& moves);
    void take_sums(int64_t c, const PartOfStripe& part);
    using Terms = std::vector<std::vector<float>>;  // one per node; this host's stays empty
    void add_terms(const Pieces& own, const Terms& incoming, float scale) const;
    // The buffers of a turn (in_turns), by node. This host's stay empty, but what it sends in a
    // gather.
    struct Turn {
        Terms terms;                  // received, or unpacked
        Terms joined;                 // to send, if it lies in pieces
        PiecesOf<const float> ready;  // to send
        std::vector<std::vector<std::byte>> packed_in;
        std::vector<std::vector<std::byte>> packed_out;
    };
    [[nodiscard]] Turn& turn(int64_t chunk) { return turns_[static_cast<size_t>(chunk % 2)]; }
    void exchange_terms(const Pieces& own, Turn& turn);
    void exchange_packed(Turn& turn, bool gathers);
    void pack_terms(const Pieces& theirs, std::vector<std::byte>& out, const ReduceCoding& coding);
    void unpack_terms(Turn& turn, int64_t exact_numel, int64_t packed_numel, WirePacking packing);
    // The messages carry tag_ and the tags after it, TAGS_USED of them, equally many on all hosts.
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
                  uint32_t tags_used = 1);

    int node_count_;
    int node_;
    std::unique_ptr<Link> link_;
    uint32_t tag_ = 0;  // tag of the next transfer; it grows equally on all hosts
    std::array<Turn, 2> turns_;
    // A chunk's sums on their way, where they lie in pieces.
    std::vector<float> sums_out_;
    Terms sums_in_;
    // Values on their way to or from being packed; one chunk of each.
    std::vector<float> values_;
    std::vector<float> rounded_;
};

}  // namespace dslaunch::runtime
