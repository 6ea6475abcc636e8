// The bytes that the collectives of a plan send from this rank's host to other hosts. Pure. Source
// of the volumes: Rajbhandari et al. 2019 (ZeRO), section 7. With H hosts, a gradient bucket of n
// elements costs `2 * n * (H - 1) / H` elements at stage 0. From stage 1 on, the reduction of the
// bucket costs `n * (H - 1) / H`, and so does the gather of the parameters.
#pragma once

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Computes the bytes that a rank's host sends to other hosts, for each kind of collective.
class LinkBytes {
  public:
    // LAYOUT, OPTIONS and the objects that OPTIONS points to must outlive this object.
    LinkBytes(const FlatLayout& layout, const StepPlanOptions& options);

    // Returns the bytes of a bucket's gradients, in fp32 or packed. If each host holds a copy of
    // the states, as at stage 0, the gradients are sent to all hosts. Otherwise, each gradient is
    // sent to the host that owns it. If there are several copies of the states, the owner then
    // exchanges the sum with the owners in the other copies. Usage flags are always sent to all
    // hosts.
    [[nodiscard]] Bytes sent_by_reduce(int bucket) const;
    // Returns the bytes that this host sends if a bucket is exchanged in 1 bit per element, with
    // the scales of its blocks: `2 * (n / 8 + 4 * blocks) * (H - 1) / H`. Values are sent to the
    // hosts that average them, and averages to all hosts (plan/exchange/sign_runs.h).
    // sent_by_exchange_of_all returns the sum over all hosts.
    [[nodiscard]] Bytes sent_by_exchange(int bucket) const;
    [[nodiscard]] Bytes sent_by_exchange_of_all(int bucket) const;
    // Returns the bytes that this host sends to gather a bucket: its part of the parameters, once
    // for every other host of its shard group.
    [[nodiscard]] Bytes sent_by_gather(int bucket) const;
    // Returns the bytes that this host sends for the gradient norm: the sums of squares of its
    // blocks in all trained buckets, and length fields. The first bridge sends them to all other
    // hosts. Returns 0 if each host already has all these sums.
    [[nodiscard]] Bytes sent_by_norm() const;
    // Returns the number of elements of a bucket whose rounding errors this rank keeps.
    [[nodiscard]] int64_t error_numel(int bucket) const;

  private:
    [[nodiscard]] int64_t owned_numel(int bucket, int node) const;
    [[nodiscard]] int64_t owned_in(int bucket, int node, const std::vector<Range>& ranges) const;
    [[nodiscard]] int64_t exact_numel(int bucket, int node) const;
    [[nodiscard]] int64_t sent_to_all(int64_t numel) const;
    // Returns the bytes of a stream of NUMEL elements that is divided among the bridges.
    [[nodiscard]] int64_t stream_bytes(WirePacking packing, int64_t numel, int64_t element) const;

    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    int64_t nodes_ = 1;
    int bridges_ = 1;
    int node_ = 0;
    int first_owner_ = 0;      // first rank of the group that shards this rank's copy
    int64_t group_nodes_ = 1;  // number of hosts of that group
    std::vector<int> node_of_rank_;
};

}  // namespace dslaunch::plan
