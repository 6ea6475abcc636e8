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
    node_ = node_of_rank_[options.rank];
    first_owner_ = options.rank - options.shard_rank();
    group_nodes_ =
        node_of_rank_[first_owner_ + options.shard_ranks() - 1] - node_of_rank_[first_owner_] + 1;
}

// The elements of a bucket that this host's ranks own.
int64_t LinkBytes::own_numel(int bucket) const {
    int64_t numel = 0;
    for (const ShardPiece& piece : options_.partition->buckets[bucket])
        if (node_of_rank_[first_owner_ + piece.owner] == node_) numel += piece.range.numel;
    return numel;
}

namespace {

// Returns the elements that a host sends for a sum of NUMEL that all of NODES get: the others'
// parts, and its own part's sum to all of them.
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
        const int64_t own = own_numel(bucket);
        const int copy = options_.rank / options_.shard_ranks();
        return Bytes{(of.numel - own + sent_by_all_reduce(own, copy, options_.copies()) +
                      flags * (nodes_ - 1)) *
                     4};
    }
    // Bridge k sums stripe k.
    const int64_t numel = of.numel + flags;
    const int bridges = *std::min_element(options_.node_sizes.begin(), options_.node_sizes.end());
    int64_t sent = 0;
    for (int k = 0; k < bridges; ++k) {
        sent += sent_by_all_reduce(part_range(numel, {k, bridges}).numel, node_, nodes_);
    }
    return Bytes{sent * 4};
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
    return Bytes{own_numel(bucket) * (group_nodes_ - 1) * options_.parameter_bytes};
}

}  // namespace dslaunch::plan
