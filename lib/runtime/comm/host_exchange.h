// The exchange of one bridge with the same bridge of the other hosts: ordered sums, broadcast and
// gather over a Link. A stream of elements consists of pieces of memory. It is cut into chunks:
// while one chunk is sent, the next chunk is prepared and the previous chunk is processed. Data
// path: collectives -> host exchange -> link. Threads: one thread at a time, but any thread may
// call abort(). A reduction to owners adds one chunk in a thread of its own while the next chunk is
// sent.
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

// Consecutive elements of a stream, as pieces of memory.
template <typename T>
using PiecesOf = std::vector<std::span<T>>;
using Pieces = PiecesOf<float>;

// Returns the number of elements of a stream.
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

// The number of elements of a chunk. A chunk consists of whole blocks of packed values
// (wire_bytes). For each other host, a bridge needs memory for two chunks to send and two to
// receive.
inline constexpr int64_t kChunkNumel = 1 << 20;
// Return the number of chunks of a stream of NUMEL elements, and the range of the elements in chunk
// number CHUNK (counted from 0). The last chunk of a stream may be shorter than its range.
[[nodiscard]] constexpr int64_t chunks_of(int64_t numel) {
    return (numel + kChunkNumel - 1) / kChunkNumel;
}
[[nodiscard]] constexpr Range chunk_range(int64_t chunk) {
    return {chunk * kChunkNumel, kChunkNumel};
}

// Calls before(c), during(c) and after(c) for every chunk c, in this order for each chunk. While
// during(c) runs, another thread runs after(c - 1) and then before(c + 1), if a thread can be
// started. Buffers for two turns are enough. If during(c) throws, after(c - 1) is no longer running
// when the error leaves this function.
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

// The sums that a host sends to another host: first the sums that every host owns (exact), then the
// sums that only the receiver owns, which may be packed.
struct OwnerStream {
    Pieces exact;
    Pieces packed;
};

// The exchanges between hosts. On all hosts, the bridges with the same index must make the same
// calls in the same order. Each call throws the errors of Link::transfer.
class HostExchange {
  public:
    // REQUIRES: there are at least two hosts.
    HostExchange(const Topology& topology, std::unique_ptr<Link> link);

    // Replaces PIECES by their sum over hosts in node-rank order, times SCALE. The pieces are fp32,
    // and all hosts have equally many elements. Each of the H hosts sums one of H parts and sends
    // the sums back, so a host sends `2 * (H - 1) / H` of the elements.
    void reduce(const Pieces& pieces, float scale);
    // Sends STREAMS[q], which consists of pieces of this host's sums, to host q. STREAMS[own host]
    // is not sent: its pieces are replaced by the sum over hosts in node-rank order, times SCALE.
    // REQUIRES: a stream has the same length on all hosts; streams share no memory, but all of them
    // may begin with the same pieces.
    void reduce_to_owners(const std::vector<Pieces>& streams, float scale);
    // Does the same as reduce_to_owners(), but packs STREAMS[q].packed as CODING says. This host's
    // own term is added unpacked. CODING.errors has one rounding error for each packed element that
    // is sent, host by host in node-rank order.
    void reduce_packed(const std::vector<OwnerStream>& streams, float scale,
                       const ReduceCoding& coding);
    // Replaces PIECES by the sum over hosts, times SCALE, the same on all hosts. Values are sent in
    // 16 bits in both directions. This host's own term is added unpacked. REQUIRES: CODING.packing
    // is a 16-bit packing, without errors.
    void reduce_packed_for_all(const Pieces& pieces, float scale, const ReduceCoding& coding);
    // Sends this host's entry of PIECES to all other hosts, and receives the entries of the other
    // hosts in place. REQUIRES: PIECES has the same numbers and lengths of pieces on all hosts, and
    // all lengths are above 0.
    void gather(const std::vector<PiecesOf<std::byte>>& pieces);
    // Does the same for elements of CODING.dtype, which are packed. The pieces of all hosts, this
    // one included, are replaced by their packed values. Hosts may divide their streams into
    // different pieces, but the streams have equal lengths.
    void gather_packed(const std::vector<PiecesOf<std::byte>>& pieces, const GatherCoding& coding);
    // Sends SENDS[q] to host q, and receives RECEIVES[q] from it. This host's own entries and empty
    // entries are skipped. REQUIRES: lengths are equal at both ends.
    void swap(std::span<const std::span<const std::byte>> sends,
              std::span<const std::span<std::byte>> receives);
    // Copies BYTES from node 0 to all nodes.
    void broadcast(std::span<std::byte> bytes);
    // Returns one string from each host, by node rank.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);

    // Call the link's functions of the same names. Any thread may call them.
    void abort(std::string_view text) { link_->abort(text); }
    [[nodiscard]] TrafficTable traffic() const { return link_->traffic(); }

  private:
    using Sends = std::vector<std::span<const std::byte>>;  // one per node
    using Receives = std::vector<std::span<std::byte>>;     // one per node
    using Terms = std::vector<std::vector<float>>;          // one per node; this host's stays empty
    // The state of a chunk during in_turns(): its messages, and for each node a buffer for values
    // that must be packed, unpacked or joined.
    struct Turn {
        Sends sends;
        Receives receives;
        Terms terms;   // received, or unpacked
        Terms joined;  // values to send that are in several pieces
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
    // Transfers messages. They use TAGS_USED tags, beginning with tag_. The tags are the same on
    // all hosts.
    void transfer(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
                  uint32_t tags_used = 1);

    int node_count_;
    int node_;
    std::unique_ptr<Link> link_;
    uint32_t tag_ = 0;  // tag of the next transfer; it grows equally on all hosts
    std::array<Turn, 2> turns_;
    // Room for one chunk of values before packing, and for one chunk after unpacking.
    std::vector<float> values_;
    std::vector<float> rounded_;
};

}  // namespace dslaunch::runtime
