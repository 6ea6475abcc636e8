// The way of sharding that suits a job (dslaunch.shard auto): the bytes that each would move to and
// from disks, keep and send, and the best of them. Data path: flat layout -> shard choice ->
// partition. Pure; every rank computes the same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/layout/partition.h"
#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The cost of one way of sharding in a step. It leaves out what does not differ between ways:
// however many pieces a chunk has, it is one extent, moved by requests of the same size; on one
// host nothing is sent, and all that its ranks own goes to its disks whoever owns it.
struct ShardCost {
    ShardBy by = ShardBy::kFlat;
    PartitionBalance balance;
    // Bytes of the host that moves most: chunks once each way, parameters on disk twice more for
    // gathers.
    Bytes read;
    Bytes written;
    int64_t extents_max = 0;  // that the rank with most of them reads and writes
    Bytes sent;               // by the host that sends most to others

    [[nodiscard]] Bytes moved() const { return read + written; }
};

// Returns the cost of every way, in the order of ShardBy. OPTIONS: of any rank; its partition is
// not read. REQUIRES: stage 1 or above.
[[nodiscard]] std::vector<ShardCost> shard_costs(const ModelInfo& model, const FlatLayout& layout,
                                                 const StepPlanOptions& options);

// The choice is the fewest bytes through the busiest host's disks, where anything is offloaded;
// then the smallest share of the rank that owns most, which it updates; then the fewest bytes sent.
// Less than a twentieth is no difference, and without one it is flat. Rates turn bytes into seconds
// and do not change which is fewest, so that hosts with other disks come to the same choice.
[[nodiscard]] ShardBy choose_shard(std::span<const ShardCost> costs);

// Returns why BY was chosen, a line with the numbers of all ways. FOLDER: of the offload, for
// advice.
[[nodiscard]] std::string shard_reason(std::span<const ShardCost> costs, ShardBy by,
                                       const DiskRates& rates, const std::string& folder);

}  // namespace dslaunch::plan
