// Chooses the best way of sharding for a job (dslaunch.shard auto). For each way, it computes the
// bytes read from disks, written to disks, and sent. Data path: flat layout -> shard choice ->
// partition. Pure; every rank computes the same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/layout/partition.h"
#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The cost of a step with one way of sharding. Costs that are the same for every way are left out.
// For example, all pieces of a chunk are one extent on disk, so the requests to the disk have the
// same size. A single host sends nothing, and its disks move the same bytes with every way of
// sharding.
struct ShardCost {
    ShardBy by = ShardBy::kFlat;
    PartitionBalance balance;
    // Bytes read and written by the host that moves most. Chunks are read and written once;
    // parameters on disk are also read twice for gathers.
    Bytes read;
    Bytes written;
    int64_t extents_max = 0;  // extents of the rank that reads and writes most
    Bytes sent;               // bytes sent by the host that sends most

    // Returns the bytes read and written by the disks of the host that moves most.
    [[nodiscard]] Bytes moved() const { return read + written; }
};

// Returns the cost of every way of sharding, in the order of ShardBy. The rank and the partition in
// OPTIONS do not matter. REQUIRES: ZeRO stage 1 or above.
[[nodiscard]] std::vector<ShardCost> shard_costs(const ModelInfo& model, const FlatLayout& layout,
                                                 const StepPlanOptions& options);

// Returns the best way of sharding. If anything is offloaded, compares first the bytes that the
// disks of the busiest host move. Then compares the number of elements of the rank that owns the
// most, then the bytes sent. A difference of less than a twentieth does not count. If no difference
// counts, returns kFlat. The rates of the disks are not considered, so hosts with different disks
// make the same choice.
[[nodiscard]] ShardBy choose_shard(std::span<const ShardCost> costs);

// Returns the reason for choosing BY: a line with the numbers of all ways of sharding. FOLDER is
// the offload folder; the advice in the line names it.
[[nodiscard]] std::string shard_reason(std::span<const ShardCost> costs, ShardBy by,
                                       const DiskRates& rates, const std::string& folder);

}  // namespace dslaunch::plan
