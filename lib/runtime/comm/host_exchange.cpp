#include "runtime/comm/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::runtime {

namespace {

// A tag is used again only after its transfer has ended, and Gloo allows no tags beyond 2^31.
constexpr uint32_t kTagMask = (1U << 30) - 1;

// Returns PIECES as one span: the only piece itself, or a copy of all pieces in STORAGE.
std::span<const float> joined(const Pieces& pieces, std::vector<float>& storage) {
    if (pieces.size() == 1) return pieces.front();
    storage.clear();
    for (const std::span<float>& piece : pieces)
        storage.insert(storage.end(), piece.begin(), piece.end());
    return storage;
}

}  // namespace

HostExchange::HostExchange(const Topology& topology, std::unique_ptr<Link> link)
    : node_count_(topology.node_count()), node_(topology.node_rank), link_(std::move(link)) {
    DSL_CHECK(node_count_ > 1, "an exchange needs at least two hosts, but there are {}",
              node_count_);
    const auto nodes = static_cast<size_t>(node_count_);
    for (Turn& turn : turns_) {
        turn.sends.resize(nodes);
        turn.receives.resize(nodes);
        turn.terms.resize(nodes);
        turn.joined.resize(nodes);
        turn.packed_in.resize(nodes);
        turn.packed_out.resize(nodes);
    }
}

void HostExchange::transfer(const std::vector<LinkSend>& sends,
                            const std::vector<LinkReceive>& receives, uint32_t tags_used) {
    tag_ = (tag_ + tags_used) & kTagMask;
    if (!sends.empty() || !receives.empty()) link_->transfer(sends, receives);
}

void HostExchange::reduce(const Pieces& pieces, float scale) {
    const int64_t numel = numel_of(pieces);
    std::vector<Pieces> stripes;
    for (int node = 0; node < node_count_; ++node)
        stripes.push_back(cut(pieces, sub_stripe(numel, node)));
    reduce_to_owners(stripes, scale);
    // The first stripe is the longest, so this loop reaches all chunks of all stripes.
    for (int64_t c = 0; c < chunks_of(sub_stripe(numel, 0).numel); ++c)
        gather_sums(stripes, chunk_range(c));
}

// Sends CHUNK of this host's stripe to the other hosts, and receives the same chunk of their
// stripes. If a received chunk belongs in several pieces of memory, it is first received into one
// buffer.
void HostExchange::gather_sums(const std::vector<Pieces>& stripes, const Range& chunk) {
    Turn& now = turns_.front();
    const std::span<const float> sums = joined(cut(stripes[node_], chunk), now.joined[node_]);
    for (int node = 0; node < node_count_; ++node) {
        const Pieces theirs = cut(stripes[node], chunk);
        std::vector<float>& beside = now.terms[node];
        beside.resize(theirs.size() > 1 ? static_cast<size_t>(numel_of(theirs)) : 0);
        now.sends[node] = std::as_bytes(sums);
        now.receives[node] =
            std::as_writable_bytes(theirs.size() == 1 ? theirs.front() : std::span(beside));
    }
    swap(now.sends, now.receives);
    for (int node = 0; node < node_count_; ++node) {
        const float* from = now.terms[node].data();
        if (node == node_ || now.terms[node].empty()) continue;
        for (const std::span<float>& piece : cut(stripes[node], chunk)) {
            std::copy_n(from, piece.size(), piece.begin());
            from += piece.size();
        }
    }
}

void HostExchange::reduce_to_owners(const std::vector<Pieces>& streams, float scale) {
    DSL_CHECK(std::ssize(streams) == node_count_, "{} streams were given for {} hosts",
              streams.size(), node_count_);
    int64_t longest = 0;
    for (const Pieces& stream : streams) longest = std::max(longest, numel_of(stream));
    const auto own = [&](int64_t c) { return cut(streams[node_], chunk_range(c)); };
    in_turns(
        chunks_of(longest),
        [&](int64_t c) {
            Turn& now = turn(c);
            const auto own_numel = static_cast<size_t>(numel_of(own(c)));
            for (int node = 0; node < node_count_; ++node) {
                if (node == node_) continue;
                now.sends[node] =
                    std::as_bytes(joined(cut(streams[node], chunk_range(c)), now.joined[node]));
                now.terms[node].resize(own_numel);
                now.receives[node] = std::as_writable_bytes(std::span(now.terms[node]));
            }
        },
        [&](int64_t c) { swap(turn(c).sends, turn(c).receives); },
        [&](int64_t c) { add_terms(own(c), turn(c).terms, scale); });
}

void HostExchange::add_terms(const Pieces& own, const Terms& incoming, float scale) const {
    int64_t begin = 0;
    for (const std::span<float>& piece : own) {
        std::vector<const float*> sources;
        for (int node = 0; node < node_count_; ++node)
            sources.push_back(node == node_ ? piece.data() : incoming[node].data() + begin);
        kernels::ordered_sum(sources, scale, piece.data(), std::ssize(piece));
        begin += std::ssize(piece);
    }
}

void HostExchange::gather(const std::vector<PiecesOf<std::byte>>& pieces) {
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    uint32_t tags_used = 0;
    for (int owner = 0; owner < node_count_; ++owner) {
        for (const std::span<std::byte>& piece : pieces[owner]) {
            const uint32_t tag = tag_ + tags_used++;
            if (owner != node_) receives.push_back({owner, tag, piece});
            for (int node = 0; node < node_count_ && owner == node_; ++node)
                if (node != node_) sends.push_back({node, tag, piece});
        }
    }
    transfer(sends, receives, tags_used);
}

void HostExchange::swap(std::span<const std::span<const std::byte>> sends,
                        std::span<const std::span<std::byte>> receives) {
    DSL_CHECK(std::ssize(sends) == node_count_ && std::ssize(receives) == node_count_,
              "{} messages to send and {} messages to receive were given for {} hosts",
              sends.size(), receives.size(), node_count_);
    std::vector<LinkSend> out;
    std::vector<LinkReceive> in;
    for (int node = 0; node < node_count_; ++node) {
        const auto q = static_cast<size_t>(node);
        if (node == node_) continue;
        if (!sends[q].empty()) out.push_back({node, tag_, sends[q]});
        if (!receives[q].empty()) in.push_back({node, tag_, receives[q]});
    }
    transfer(out, in);
}

void HostExchange::broadcast(std::span<std::byte> bytes) {
    std::vector<PiecesOf<std::byte>> pieces(static_cast<size_t>(node_count_));
    if (!bytes.empty()) pieces.front() = {bytes};
    gather(pieces);
}

std::vector<std::string> HostExchange::all_gather(std::string_view mine) {
    const auto nodes = static_cast<size_t>(node_count_);
    std::vector<uint64_t> sizes(nodes, mine.size());
    std::vector<std::string> all(nodes);
    Receives receives;
    for (uint64_t& size : sizes) receives.push_back(std::as_writable_bytes(std::span(&size, 1)));
    swap(Sends(nodes, std::as_bytes(std::span(&sizes[node_], 1))), receives);
    for (size_t node = 0; node < nodes; ++node) {
        all[node].resize(sizes[node]);
        receives[node] = std::as_writable_bytes(std::span(all[node]));
    }
    all[node_] = mine;
    swap(Sends(nodes, std::as_bytes(std::span(mine))), receives);
    return all;
}

}  // namespace dslaunch::runtime
