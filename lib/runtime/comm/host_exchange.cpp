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

// The turns after which a chunk's sums go back: it is sent, then added.
constexpr int64_t kSumsLater = 2;

}  // namespace

HostExchange::HostExchange(const Topology& topology, std::unique_ptr<Link> link)
    : node_count_(topology.node_count()),
      node_(topology.node_rank),
      link_(std::move(link)),
      sums_in_(static_cast<size_t>(topology.node_count())) {
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

// Chunk c of each host's sub-stripe goes to that host while the sums of chunk c - 2 come back, and
// chunk c - 1 is added beside both.
void HostExchange::reduce(const Pieces& pieces, int64_t numel, float scale) {
    DSL_CHECK(numel_of(pieces) == numel, "the pieces are not {} elements", numel);
    int64_t longest = 0;
    for (int node = 0; node < node_count_; ++node)
        longest = std::max(longest, sub_stripe(numel, node).numel);
    const int64_t chunks = chunks_of(longest);
    const auto part = [&](int node, int64_t c) {
        const Range stripe = sub_stripe(numel, node);
        const Range inside = intersect({0, stripe.numel}, chunk_range(c));
        return cut(pieces, {stripe.begin + inside.begin, inside.numel});
    };
    const auto add = [&](int64_t c) {
        if (c < chunks) add_terms(part(node_, c), turn(c).terms, scale);
    };
    const auto move = [&](int64_t c) {
        Moves moves;
        if (c < chunks) add_scatter(c, part, moves);
        if (c >= kSumsLater) add_gather(c - kSumsLater, part, moves);
        transfer(moves.sends, moves.receives, 2);
        if (c >= kSumsLater) take_sums(c - kSumsLater, part);
    };
    if (chunks > 1)
        return in_turns(
            chunks + kSumsLater, [](int64_t) {}, move, add);
    for (int64_t c = 0; c < chunks; ++c) {  // nothing to do beside
        move(c);
        add(c);
        move(c + kSumsLater);
    }
}

// Adds the messages that bring each host its terms of chunk C.
void HostExchange::add_scatter(int64_t c, const PartOfStripe& part, Moves& moves) {
    Turn& now = turn(c);
    const auto own_numel = static_cast<size_t>(numel_of(part(node_, c)));
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        const std::span<const float> theirs = joined(part(node, c), now.joined[node]);
        if (!theirs.empty()) moves.sends.push_back({node, tag_, std::as_bytes(theirs)});
        std::vector<float>& terms = now.terms[node];
        terms.resize(own_numel);
        if (own_numel > 0)
            moves.receives.push_back({node, tag_, std::as_writable_bytes(std::span(terms))});
    }
}

// Adds the messages that bring this host's sums of chunk C to the others and theirs here: in place,
// or beside it where they lie in pieces.
void HostExchange::add_gather(int64_t c, const PartOfStripe& part, Moves& moves) {
    const std::span<const float> sums = joined(part(node_, c), sums_out_);
    for (int node = 0; node < node_count_; ++node) {
        if (node == node_) continue;
        if (!sums.empty()) moves.sends.push_back({node, tag_ + 1, std::as_bytes(sums)});
        const Pieces theirs = part(node, c);
        if (theirs.empty()) continue;
        std::span<float> into = theirs.front();
        if (theirs.size() > 1) {
            sums_in_[node].resize(static_cast<size_t>(numel_of(theirs)));
            into = sums_in_[node];
        }
        moves.receives.push_back({node, tag_ + 1, std::as_writable_bytes(into)});
    }
}

// Copies what came beside its pieces to them.
void HostExchange::take_sums(int64_t c, const PartOfStripe& part) {
    for (int node = 0; node < node_count_; ++node) {
        const Pieces theirs = node == node_ ? Pieces{} : part(node, c);
        if (theirs.size() < 2) continue;
        const float* from = sums_in_[node].data();
        for (const std::span<float>& piece : theirs) {
            std::copy_n(from, piece.size(), piece.begin());
            from += piece.size();
        }
    }
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

void HostExchange::swap(std::span<const std::span<const std::byte>> sends,
                        std::span<const std::span<std::byte>> receives) {
    DSL_CHECK(std::ssize(sends) == node_count_ && std::ssize(receives) == node_count_,
              "{} and {} messages for {} hosts", sends.size(), receives.size(), node_count_);
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
