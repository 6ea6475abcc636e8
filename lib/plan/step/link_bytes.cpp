#include "plan/step/link_bytes.h"

#include <algorithm>

#include "plan/exchange/sign_runs.h"

namespace dslaunch::plan {

LinkBytes::LinkBytes(const FlatLayout& layout, const StepPlanOptions& options)
    : layout_(layout), options_(options), nodes_(options.node_count()) {
    for (size_t node = 0; node < options.node_sizes.size(); ++node)
        node_of_rank_.insert(node_of_rank_.end(), static_cast<size_t>(options.node_sizes[node]),
                             static_cast<int>(node));
    if (nodes_ == 1) return;
    bridges_ = *std::min_element(options.node_sizes.begin(), options.node_sizes.end());
    node_ = node_of_rank_[options.rank];
    first_owner_ = options.rank - options.shard_rank();
    group_nodes_ =
        node_of_rank_[first_owner_ + options.shard_ranks() - 1] - node_of_rank_[first_owner_] + 1;
}

// Returns how many elements of a bucket the ranks of host NODE own.
int64_t LinkBytes::owned_numel(int bucket, int node) const {
    return owned_in(bucket, node, {{0, layout_.buckets[bucket].numel}});
}

int64_t LinkBytes::owned_in(int bucket, int node, const std::vector<Range>& ranges) const {
    int64_t numel = 0;
    for (const ShardPiece& piece : options_.partition->buckets[bucket])
        if (node_of_rank_[first_owner_ + piece.owner] == node)
            for (const Range& range : ranges) numel += intersect(piece.range, range).numel;
    return numel;
}

int64_t LinkBytes::stream_bytes(WirePacking packing, int64_t numel, int64_t element) const {
    int64_t bytes = 0;
    for (int k = 0; k < bridges_; ++k)
        bytes += wire_bytes(packing, part_range(numel, {k, bridges_}).numel, element);
    return bytes;
}

namespace {

// Returns how many elements host NODE sends if NODES hosts sum NUMEL elements and all get the
// result. Each host sums a part of the elements. NODE sends every other host the elements of that
// host's part, and afterwards the sums of its own part.
int64_t sent_by_all_reduce(int64_t numel, int node, int64_t nodes) {
    const int64_t own = part_range(numel, {node, static_cast<int>(nodes)}).numel;
    return numel - own + own * (nodes - 1);
}

}  // namespace

Bytes LinkBytes::sent_by_reduce(int bucket) const {
    if (options_.sums_on_host()) return {};
    const Bucket& of = layout_.buckets[bucket];
    const int64_t flags = flag_numel(of);
    if (options_.stage > 0 && options_.shards_over_hosts()) {
        const int64_t own = owned_numel(bucket, node_);
        const int copy = options_.rank / options_.shard_ranks();
        int64_t sent =
            (sent_by_all_reduce(own, copy, options_.copies()) + flags * (nodes_ - 1)) * 4;
        const int first = node_of_rank_[first_owner_];
        for (int node = first; node < first + group_nodes_; ++node) {
            if (node == node_) continue;
            const int64_t as_they_are = exact_numel(bucket, node);
            sent +=
                stream_bytes(WirePacking::kNone, as_they_are, 4) +
                stream_bytes(options_.reduce_packing(), owned_numel(bucket, node) - as_they_are, 4);
        }
        return Bytes{sent};
    }
    const int64_t numel = of.numel + flags;
    if (!is_half(options_.reduce_packing())) return Bytes{sent_to_all(numel) * 4};
    int64_t as_they_are = 0;
    for (const Range& range : exact_ranges(layout_, bucket)) as_they_are += range.numel;
    return Bytes{sent_to_all(as_they_are) * 4 + sent_to_all(numel - as_they_are) * 2};
}

// Returns the number of elements that host NODE owns and that must be sent exactly, if gradients
// are packed in 16 bits. Returns 0 for other packings.
int64_t LinkBytes::exact_numel(int bucket, int node) const {
    if (!is_half(options_.reduce_packing())) return 0;
    return owned_in(bucket, node, exact_ranges(layout_, bucket));
}

// Returns how many elements this host sends if all hosts get the sum of NUMEL elements. The
// elements are divided evenly among the bridges.
int64_t LinkBytes::sent_to_all(int64_t numel) const {
    int64_t sent = 0;
    for (int k = 0; k < bridges_; ++k)
        sent += sent_by_all_reduce(part_range(numel, {k, bridges_}).numel, node_, nodes_);
    return sent;
}

Bytes LinkBytes::sent_by_exchange(int bucket) const {
    return SignRuns(layout_, bucket, static_cast<int>(nodes_), options_.bridge_count())
        .sent_by(node_);
}

Bytes LinkBytes::sent_by_exchange_of_all(int bucket) const {
    return SignRuns(layout_, bucket, static_cast<int>(nodes_), options_.bridge_count())
        .sent_by_all();
}

Bytes LinkBytes::sent_by_gather(int bucket) const {
    if (!options_.shards_over_hosts()) return {};
    return Bytes{stream_bytes(options_.gather_packing(layout_.buckets[bucket]),
                              owned_numel(bucket, node_), options_.parameter_bytes) *
                 (group_nodes_ - 1)};
}

Bytes LinkBytes::sent_by_norm() const {
    if (nodes_ == 1 || options_.stage == 0 || !options_.shards_over_hosts()) return {};
    int64_t numbers = 0;
    for (int b = 0; b < layout_.trained_buckets; ++b)
        for (const LayoutBlock& block : blocks_of(layout_, b))
            for (const ShardPiece& piece : options_.partition->buckets[b])
                if (node_of_rank_[first_owner_ + piece.owner] == node_ &&
                    intersect(piece.range, {block.begin, block.numel}).numel > 0)
                    ++numbers;
    // The bytes of length fields. A host's message begins with a length, and so does the string of
    // each rank in the message.
    constexpr int64_t kHostLength = 8;
    constexpr int64_t kRankLength = 4;
    const int64_t ranks = options_.node_sizes[node_];
    return Bytes{(kHostLength + ranks * kRankLength + numbers * 8) * (nodes_ - 1)};
}

int64_t LinkBytes::error_numel(int bucket) const {
    if (!options_.keeps_errors() || options_.local_rank >= bridges_) return 0;
    int64_t numel = 0;
    for (int node = 0; node < nodes_; ++node)
        if (node != node_)
            numel += part_range(owned_numel(bucket, node), {options_.local_rank, bridges_}).numel;
    return numel;
}

}  // namespace dslaunch::plan
