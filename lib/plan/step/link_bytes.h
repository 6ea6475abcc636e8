// Bytes that a plan's collectives send from this rank's host to other hosts. Pure. Source of the
// volumes: Rajbhandari et al. 2019 (ZeRO), section 7: a gradient bucket of n elements costs 2 n (H
// - 1) / H at stage 0; n (H - 1) / H to reduce and as much to gather from stage 1 on.
#pragma once

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

class LinkBytes {
  public:
    // LAYOUT and OPTIONS, with the objects that it points to, must outlive this.
    LinkBytes(const FlatLayout& layout, const StepPlanOptions& options);

    // Returns the bytes of a bucket's gradients, in fp32 or packed: to all hosts at stage 0 and if
    // each host holds a copy, else to the owners' hosts, whose sums go to the other copies. Flags
    // always go to all hosts.
    [[nodiscard]] Bytes sent_by_reduce(int bucket) const;
    // Returns the bytes of a bucket in 1 bit an element and its blocks' scales, to the hosts that
    // average it and from them to all (plan/exchange/sign_runs.h): 2 (n / 8 + 4 blocks) (H - 1) /
    // H. All: of all hosts together.
    [[nodiscard]] Bytes sent_by_exchange(int bucket) const;
    [[nodiscard]] Bytes sent_by_exchange_of_all(int bucket) const;
    // Returns this host's part of a bucket's parameters, to every other host that shards its copy.
    [[nodiscard]] Bytes sent_by_gather(int bucket) const;
    // Returns the bytes of the sums of squares of this host's blocks of all trained buckets, with
    // their lengths, by its first bridge to all other hosts, unless each host has all of them.
    [[nodiscard]] Bytes sent_by_norm() const;
    // Returns the elements whose rounding errors this rank keeps.
    [[nodiscard]] int64_t error_numel(int bucket) const;

  private:
    [[nodiscard]] int64_t owned_numel(int bucket, int node) const;
    [[nodiscard]] int64_t owned_in(int bucket, int node, const std::vector<Range>& ranges) const;
    [[nodiscard]] int64_t exact_numel(int bucket, int node) const;
    [[nodiscard]] int64_t sent_to_all(int64_t numel) const;
    // Returns the bytes of a stream of NUMEL elements, which the bridges share.
    [[nodiscard]] int64_t stream_bytes(WirePacking packing, int64_t numel, int64_t element) const;

    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    int64_t nodes_ = 1;
    int bridges_ = 1;
    int node_ = 0;
    int first_owner_ = 0;      // the first rank of those that shard this rank's copy
    int64_t group_nodes_ = 1;  // hosts of those
    std::vector<int> node_of_rank_;
};

}  // namespace dslaunch::plan
