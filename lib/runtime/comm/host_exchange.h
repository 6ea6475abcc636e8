// The exchange of one bridge with the same bridge of the other hosts: ordered sums, broadcast and
// gather over a Link. Streams of elements lie in pieces of memory, and chunks of them are prepared,
// sent and taken in side by side, in turns. Data path: collectives -> host exchange -> link.
// Threads: one at a time, abort from any. A reduction to owners adds one chunk in a thread of its
// own while the next travels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/comm/wire_coding.h"

namespace dslaunch::runtime {

// Elements that follow each other in a stream, as they lie in memory.
template <typename T>
using PiecesOf = std::vector<std::span<T>>;
using Pieces = PiecesOf<float>;

template <typename T>
[[nodiscard]] int64_t numel_of(const PiecesOf<T>& pieces) {
    int64_t numel = 0;
    for (const std::span<T>& piece : pieces) numel += std::ssize(piece);
    return numel;
}

// Returns the part of the stream that lies in WANTED.
template <typename T>
[[nodiscard]] PiecesOf<T> cut(const PiecesOf<T>& stream, const Range& wanted) {
    PiecesOf<T> result;
    int64_t begin = 0;
    for (const std::span<T>& piece : stream) {
        const Range both = intersect({begin, std::ssize(piece)}, wanted);
        if (both.numel > 0)
            result.push_back(piece.subspan(static_cast<size_t>(both.begin - begin),
                                           static_cast<size_t>(both.numel)));
        begin += std::ssize(piece);
    }
    return result;
}

// The chunk of each stream, whole blocks of packed values (wire_bytes). It bounds the memory to two
// chunks to send and two to receive, for each other host.
inline constexpr int64_t kChunkNumel = 1 << 20;
[[nodiscard]] constexpr int64_t chunks_of(int64_t numel) {
    return (numel + kChunkNumel - 1) / kChunkNumel;
}
[[nodiscard]] constexpr Range chunk_range(int64_t chunk) {
    return {chunk * kChunkNumel, kChunkNumel};
}

// Calls before(c), during(c) and after(c) for every chunk c, in this order. While during(c) runs,
// after(c - 1) and then before(c + 1) run in another thread, if there is one to be had. Buffers of
// two turns are enough. After an error of during(c), after(c - 1) has ended.
template <typename Before, typename During, typename After>
void in_turns(int64_t chunks, const Before& before, const During& during, const After& after) {
    if (chunks == 0) return;
    before(0);
    for (int64_t c = 0; c < chunks; ++c) {
        const auto beside = [&, c] {
            if (c > 0) after(c - 1);
            if (c + 1 < chunks) before(c + 1);
        };
        std::future<void> other;
        if (chunks > 1) other = std::async(std::launch::async | std::launch::deferred, beside);
        during(c);
        if (other.valid()) other.get();
    }
    after(chunks - 1);
}

// The sums of a host that another one owns: first the sums that every host owns, then the ones that
// only this owner has and that may be packed.
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

    // Replaces PIECES, fp32, equally many elements on all hosts, by the sum over hosts by node
    // rank, times SCALE. Host q sums sub-stripe q of all and sends it back, so each host sends 2 (H
    // - 1) / H of the stripe.
    void reduce(const Pieces& pieces, float scale);
    // Sends STREAMS[q], pieces of this host's sums, to host q. Streams are equally long on all
    // hosts. The pieces of this host's own stream become the sum over hosts by node rank, times
    // SCALE. REQUIRES: streams overlap only in a common beginning.
    void reduce_to_owners(const std::vector<Pieces>& streams, float scale);
    // Does the same if STREAMS[q].packed travels as CODING says. Adds this host's own term as it
    // is. CODING.errors follow the packed elements of the streams of the other hosts, in order.
    void reduce_packed(const std::vector<OwnerStream>& streams, float scale,
                       const ReduceCoding& coding);
    // Replaces PIECES by the sum over hosts, times SCALE, that travels in 16 bits both ways and is
    // the same on all hosts. This host's own term is added as it is. REQUIRES: CODING.packing is of
    // 16 bits, without errors.
    void reduce_packed_for_all(const Pieces& pieces, float scale, const ReduceCoding& coding);
    // Gives host q's PIECES[q] to the others, in place. REQUIRES: the same number of pieces of
    // equal lengths above 0 on all hosts.
    void gather(const std::vector<PiecesOf<std::byte>>& pieces);
    // Does the same for elements of CODING.dtype, packed. The pieces of all hosts, this one
    // included, become what was packed. Pieces may differ: the streams are equally long.
    void gather_packed(const std::vector<PiecesOf<std::byte>>& pieces, const GatherCoding& coding);
    // Sends SENDS[q] to host q, and gets RECEIVES[q] from it. Leaves alone this host's own and
    // empty ones. REQUIRES: equal lengths at both ends.
    void swap(std::span<const std::span<const std::byte>> sends,
              std::span<const std::span<std::byte>> receives);
    // Copies BYTES of node 0 to all.
    void broadcast(std::span<std::byte> bytes);
    // Returns one string from each host, by node rank.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);

    void abort(std::string_view text) { link_->abort(text); }
    [[nodiscard]] TrafficTable traffic() const { return link_->traffic(); }

  private:
    using Sends = std::vector<std::span<const std::byte>>;  // one per node
    using Receives = std::vector<std::span<std::byte>>;     // one per node
    using Terms = std::vector<std::vector<float>>;          // one per node; this host's stays empty
    // A chunk under way (in_turns): its messages, and one buffer per node for values that do not
    // lie as they travel.
    struct Turn {
        Sends sends;
        Receives receives;
        Terms terms;   // received, or unpacked
        Terms joined;  // to send, if it lies in pieces
        std::vector<std::vector<std::byte>> packed_in;
        std::vector<std::vector<std::byte>> packed_out;
    };
    [[nodiscard]] Turn& turn(int64_t chunk) { return turns_[static_cast<size_t>(chunk % 2)]; }
    [[nodiscard]] Range sub_stripe(int64_t numel, int node) const {
        return part_range(numel, {node, node_count_});
    }
    void receive_packed(Turn& turn, int node, size_t bytes);
    void gather_sums(const std::vector<Pieces>& stripes, const Range& chunk);
    void add_terms(const Pieces& own, const Terms& incoming, float scale) const;
    void pack_terms(const Pieces& theirs, std::vector<std::byte>& out, const ReduceCoding& coding);
    void unpack_terms(Turn& turn, int64_t exact_numel, int64_t packed_numel, WirePacking packing);
    // Transfers messages with tag_ and the tags after it, TAGS_USED in all, the same on all hosts.
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
                  uint32_t tags_used = 1);

    int node_count_;
    int node_;
    std::unique_ptr<Link> link_;
    uint32_t tag_ = 0;  // tag of the next transfer; it grows equally on all hosts
    std::array<Turn, 2> turns_;
    // Values on their way to or from being packed; one chunk of each.
    std::vector<float> values_;
    std::vector<float> rounded_;
};

}  // namespace dslaunch::runtime
