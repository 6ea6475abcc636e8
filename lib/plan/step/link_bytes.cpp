#include "plan/step/link_bytes.h"

#include <algorithm>

namespace dslaunch::plan {

LinkBytes::LinkBytes(const FlatLayout& layout, const StepPlanOptions& options)
    : layout_(layout), options_(options), nodes_(options.node_count()) {
    for (size_t node = 0; node < options.node_sizes.size(); ++node)
        node_of_rank_.insert(node_of_rank_.end(), static_cast<size_t>(options.node_sizes[node]),
                             static_cast<int>(node));
    if (nodes_ > 1) node_ = node_of_rank_[options.rank];
}

int64_t LinkBytes::numel_of_node(int bucket, int node) const {
    int64_t numel = 0;
    for (const ShardPiece& piece : options_.partition->buckets[bucket])
        if (node_of_rank_[piece.owner] == node) numel += piece.range.numel;
    return numel;
}

Bytes LinkBytes::sent_by_reduce(int bucket) const {
    if (nodes_ == 1) return {};
    const Bucket& of = layout_.buckets[bucket];
    const int64_t flags = flag_numel(of);
    if (options_.stage > 0 && options_.shards_over_hosts())
        return Bytes{(of.numel - numel_of_node(bucket, node_) + flags * (nodes_ - 1)) * 4};
    // Bridge k sums stripe k: it sends the other hosts their parts, and its own part's sum to all
    // hosts.
    const int64_t numel = of.numel + flags;
    const int bridges = *std::min_element(options_.node_sizes.begin(), options_.node_sizes.end());
    int64_t sent = 0;
    for (int k = 0; k < bridges; ++k) {
        const Range stripe = part_range(numel, {k, bridges});
        const int64_t own = part_range(stripe.numel, {node_, static_cast<int>(nodes_)}).numel;
        sent += stripe.numel - own + own * (nodes_ - 1);
    }
    return Bytes{sent * 4};
}

Bytes LinkBytes::sent_by_gather(int bucket) const {
    if (!options_.shards_over_hosts()) return {};
    return Bytes{numel_of_node(bucket, node_) * (nodes_ - 1) * options_.parameter_bytes};
}

}  // namespace dslaunch::plan
