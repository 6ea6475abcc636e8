// Bytes that a plan's collectives send from this rank's host to other hosts. Pure. Source of the
// volumes: Rajbhandari et al. 2019 (ZeRO), section 7: a gradient bucket of n elements costs 2 n (H
// - 1) / H at stage 0; n (H - 1) / H to reduce and as much to gather from stage 1 on.
#pragma once

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

class LinkBytes {
  public:
    // LAYOUT and what OPTIONS points to must outlive it.
    LinkBytes(const FlatLayout& layout, const StepPlanOptions& options);

    // Gradients of a bucket: to everybody at stage 0 and where hosts hold copies, else to the
    // owners' hosts; its flags always to everybody. fp32.
    [[nodiscard]] Bytes sent_by_reduce(int bucket) const;
    // This host's part of a bucket's parameters to every other host.
    [[nodiscard]] Bytes sent_by_gather(int bucket) const;

  private:
    [[nodiscard]] int64_t numel_of_node(int bucket, int node) const;

    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    int64_t nodes_ = 1;
    int node_ = 0;
    std::vector<int> node_of_rank_;
};

}  // namespace dslaunch::plan
