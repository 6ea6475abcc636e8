// The way of sharding that suits a job (dslaunch.shard auto): the bytes that each way would move to
// and from disks, keep and send, and the best way. Data path: flat layout -> shard choice ->
// partition. Pure; every rank computes the same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/layout/partition.h"
#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The cost of one way of sharding in a step. Costs that do not differ between ways are left out: a
// chunk is one extent for any number of pieces, moved by requests of the same size; on one host
// nothing is sent, and all bytes of its ranks go to its disks, whoever owns them.
struct ShardCost {
    ShardBy by = ShardBy::kFlat;
    PartitionBalance balance;
    // Bytes of the host that moves most: chunks are read and written once, parameters on disk are
    // read twice more for gathers.
    Bytes read;
    Bytes written;
    int64_t extents_max = 0;  // read and written by the rank with most of them
    Bytes sent;               // by the host that sends most to others

    [[nodiscard]] Bytes moved() const { return read + written; }
};

// Returns the cost of every way, in the order of ShardBy. OPTIONS are for any rank, without
// a partition. REQUIRES: stage 1 or above.
[[nodiscard]] std::vector<ShardCost> shard_costs(const ModelInfo& model, const FlatLayout& layout,
                                                 const StepPlanOptions& options);

// Returns the way with the fewest bytes through the busiest host's disks, if anything is offloaded;
// then with the smallest share of the rank that owns and updates most; then with the fewest bytes
// sent. Less than a twentieth is no difference; without a difference the choice is flat. Rates of
// disks do not count, so that hosts with other disks come to the same choice.
[[nodiscard]] ShardBy choose_shard(std::span<const ShardCost> costs);

// Returns the reason for BY, a line with the numbers of all ways. FOLDER is the offload's, for
// advice.
[[nodiscard]] std::string shard_reason(std::span<const ShardCost> costs, ShardBy by,
                                       const DiskRates& rates, const std::string& folder);

}  // namespace dslaunch::plan
