// The processors of a host are given to its ranks: topology and wish -> one place a rank. Pure; no
// threads.
#pragma once

#include <string>
#include <vector>

#include "launch/machine/machine_topology.h"
#include "launch/plan/binding.h"

namespace dslaunch::launch {

struct RankPlace {
    std::vector<int> processors;  // by number, never empty
    int threads = 1;              // for operators: its cores, shared with whom it shares them
    int memory_node = -1;         // NUMA node that its memory should come from; -1: any

    bool operator==(const RankPlace&) const = default;
};

struct PlacementRequest {
    BindingRequest binding;
    // GPU of each local rank, by the order of MachineTopology::gpu_nodes; -1: none. Its length is
    // the number of ranks.
    std::vector<int> gpus;
};

// The GPUs of RANKS workers that all see DEVICES (CUDA_VISIBLE_DEVICES), each taking the one at its
// local rank; -1 where it has none, or one that is not written as a number.
[[nodiscard]] std::vector<int> rank_gpus(const std::string& devices, size_t ranks);

// The result is by local rank; empty for kAuto and kNone. Cores are given whole, with all their
// processors that may be used; where there are more ranks than cores, processors are given, and
// where there are more ranks than processors, several ranks share one. Throws Error{kUsage} when
// the core list names a processor that may not be used here. REQUIRES: topology.processors not
// empty, a core list that parse_processor_list() reads.
[[nodiscard]] std::vector<RankPlace> place_ranks(const MachineTopology& topology,
                                                 const PlacementRequest& request);

}  // namespace dslaunch::launch
