#include "runtime/comm/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::runtime {

namespace {

// A tag is used again only after its transfer has ended, and Gloo takes none beyond 2^31.
constexpr uint32_t kTagMask = (1U << 30) - 1;

// Returns PIECES as one span: the only piece itself, or a copy in STORAGE.
std::span<const float> joined(const Pieces& pieces, std::vector<float>& storage) {
    if (pieces.size() == 1) return pieces.front();
    storage.clear();
    for (const std::span<float>& piece : pieces)
        storage.insert(storage.end(), piece.begin(), piece.end());
    return storage;
}

std::span<float> at(std::vector<float>& values, const Range& range) {
    return std::span(values).subspan(static_cast<size_t>(range.begin),
                                     static_cast<size_t>(range.numel));
}

}  // namespace

HostExchange::HostExchange(const Topology& topology, std::unique_ptr<Link> link)
    : node_count_(topology.node_count()),
      node_(topology.node_rank),
      link_(std::move(link)),
      incoming_(static_cast<size_t>(topology.node_count())) {
    DSL_CHECK(node_count_ > 1, "an exchange over {} hosts", node_count_);
    const auto nodes = static_cast<size_t>(node_count_);
    for (Turn& turn : turns_) {
        turn.terms.resize(nodes);
        turn.joined.resize(nodes);
        turn.ready.resize(nodes);
        turn.packed_in.resize(nodes);
        turn.packed_out.resize(nodes);
    }
}

Range HostExchange::sub_stripe(int64_t numel, int node) const {
    return part_range(numel, {node, node_count_});
}

void HostExchange::transfer(const std::vector<LinkSend>& sends,
                            const std::vector<LinkReceive>& receives, uint32_t tags_used) {
    tag_ = (tag_ + tags_used) & kTagMask;
    if (!sends.empty() || !receives.empty()) link_->transfer(sends, receives);
}

void HostExchange::reduce(const Pieces& pieces, int64_t numel, float scale) {
    if (std::ssize(stripe_) < numel) stripe_.resize(static_cast<size_t>(numel));
    float* into = stripe_.data();
    for (const std::span<float>& piece : pieces) into = std::copy(piece.begin(), piece.end(), into);
    DSL_CHECK(into == stripe_.data() + numel, "the pieces are not {} elements", numel);
    scatter(numel);
    sum(numel, scale);
    gather_sums(numel);
    const float* from = stripe_.data();
    for (const std::span<float>& piece : pieces) {
        std::copy(from, from + piece.size(), piece.begin());
        from += piece.size();
    }
}

// Sends each host its sub-stripe of this host's values, and receives this host's from all others.
void HostExchange::scatter(int64_t numel) {
    const Range own = sub_stripe(numel, node_);
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        const Range theirs = sub_stripe(numel, node);
        if (theirs.numel > 0) sends.push_back({node, tag_, std::as_bytes(at(stripe_, theirs))});
        std::vector<float>& terms = incoming_[node];
        terms.resize(static_cast<size_t>(own.numel));
        if (own.numel > 0)
            receives.push_back({node, tag_, std::as_writable_bytes(std::span(terms))});
    }
    transfer(sends, receives);
}

void HostExchange::sum(int64_t numel, float scale) {
    const Range own = sub_stripe(numel, node_);
    if (own.numel == 0) return;
    std::vector<const float*> sources;
    for (int node = 0; node < node_count_; ++node)
        sources.push_back(node == node_ ? stripe_.data() + own.begin : incoming_[node].data());
    kernels::ordered_sum(sources, scale, stripe_.data() + own.begin, own.numel);
}

// Sends this host's sums to all others, and receives theirs.
void HostExchange::gather_sums(int64_t numel) {
    const Range own = sub_stripe(numel, node_);
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        if (own.numel > 0) sends.push_back({node, tag_, std::as_bytes(at(stripe_, own))});
        const Range theirs = sub_stripe(numel, node);
        if (theirs.numel > 0)
            receives.push_back({node, tag_, std::as_writable_bytes(at(stripe_, theirs))});
    }
    transfer(sends, receives);
}

void HostExchange::reduce_to_owners(const std::vector<Pieces>& streams, float scale) {
    DSL_CHECK(std::ssize(streams) == node_count_, "{} streams for {} hosts", streams.size(),
              node_count_);
    int64_t longest = 0;
    for (const Pieces& stream : streams) longest = std::max(longest, numel_of(stream));
    const auto own = [&](int64_t c) { return cut(streams[node_], chunk_range(c)); };
    in_turns(
        chunks_of(longest),
        [&](int64_t c) {
            for (int node = 0; node < node_count_; ++node)
                if (node != node_)
                    turn(c).ready[node] =
                        joined(cut(streams[node], chunk_range(c)), turn(c).joined[node]);
        },
        [&](int64_t c) { exchange_terms(own(c), turn(c)); },
        [&](int64_t c) { add_terms(own(c), turn(c).terms, scale); });
}

// Sends every other host what is ready for it, and receives its terms of OWN.
void HostExchange::exchange_terms(const Pieces& own, Turn& turn) {
    const auto own_numel = static_cast<size_t>(numel_of(own));
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        if (!turn.ready[node].empty())
            sends.push_back({node, tag_, std::as_bytes(turn.ready[node])});
        std::vector<float>& terms = turn.terms[node];
        terms.resize(own_numel);
        if (own_numel > 0)
            receives.push_back({node, tag_, std::as_writable_bytes(std::span(terms))});
    }
    transfer(sends, receives);
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

void HostExchange::gather(const std::vector<std::vector<std::span<std::byte>>>& pieces) {
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

void HostExchange::broadcast(std::span<std::byte> bytes) {
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    if (!bytes.empty() && node_ != 0) receives.push_back({0, tag_, bytes});
    if (!bytes.empty() && node_ == 0) {
        for (int node = 1; node < node_count_; ++node) sends.push_back({node, tag_, bytes});
    }
    transfer(sends, receives);
}

std::vector<std::string> HostExchange::all_gather(std::string_view mine) {
    std::vector<uint64_t> sizes(static_cast<size_t>(node_count_), mine.size());
    std::vector<std::string> all(static_cast<size_t>(node_count_));
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        const size_t index = static_cast<size_t>(node);
        sends.push_back({node, tag_, std::as_bytes(std::span(&sizes[node_], 1))});
        receives.push_back({node, tag_, std::as_writable_bytes(std::span(&sizes[index], 1))});
    }
    transfer(sends, receives);
    sends.clear();
    receives.clear();
    for (int node = 0; node < node_count_; ++node) {
        const size_t index = static_cast<size_t>(node);
        if (node == node_) {
            all[index] = mine;
            continue;
        }
        if (!mine.empty()) sends.push_back({node, tag_, std::as_bytes(std::span(mine))});
        all[index].resize(sizes[index]);
        if (!all[index].empty())
            receives.push_back({node, tag_, std::as_writable_bytes(std::span(all[index]))});
    }
    transfer(sends, receives);
    return all;
}

std::string HostExchange::shift(std::string_view mine) {
    std::string theirs(mine.size(), '\0');
    const int next = (node_ + 1) % node_count_, before = (node_ + node_count_ - 1) % node_count_;
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    if (!mine.empty()) {
        sends.push_back({next, tag_, std::as_bytes(std::span(mine))});
        receives.push_back({before, tag_, std::as_writable_bytes(std::span(theirs))});
    }
    transfer(sends, receives);
    return theirs;
}

}  // namespace dslaunch::runtime
