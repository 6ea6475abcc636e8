// Finds the meshes that suit a job best. Tries every way to lay the pipeline, data, tensor and
// sequence axes over the hosts, with every ZeRO stage and schedule, and with recomputation if
// memory is short; the global batch is always the same. Data path: mesh cost -> [here] ->
// mesh_text, `dslaunch plan --search`. Pure. Some thousand choices are tried in a second.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/choose/mesh_cost.h"

namespace dslaunch::plan {

// The meshes and settings to try, and the limit that they must keep.
struct MeshSearch {
    std::vector<int> pipeline_sizes = {};  // empty: all
    std::vector<int> tensor_sizes = {1};   // sizes that the model's rules allow
    std::vector<int> sequence_sizes = {1};
    std::vector<int> zero_stages = {0, 1, 2, 3};
    bool each_zero_stage = false;  // true: each stage is a finding, not only a mesh's best stage
    std::vector<ScheduleKind> schedules = {kScheduleKinds.begin(), kScheduleKinds.end()};
    int chunks = 2;             // chunks of each stage in an interleaved schedule
    int64_t micro_batches = 1;  // micro batches of the global batch, over all data-parallel ranks
    std::optional<Bytes> host_memory_max;
    size_t count_max = 5;
};

// A mesh that is possible, with its cost.
struct MeshFinding {
    MeshChoice choice;
    MeshCost cost;
};

// The result of a search.
struct MeshFindings {
    // The findings that fit and have the shortest steps, the shortest step first. Each has a
    // different mesh or schedule, or a different ZeRO stage if the search asks for each stage. If
    // two steps are equally short, the finding that needs less memory comes first.
    std::vector<MeshFinding> best;
    int64_t looked_at = 0;
    int64_t fitting = 0;
    // The finding that needs the least memory on a host, if nothing fits. Empty if something fits,
    // or if no mesh is possible at all.
    std::optional<MeshFinding> smallest;
};

// Returns the best meshes. Ignores REQUEST.rank_memory_max. Instead, tries two ways to cut stages:
// without a memory limit, and with an equal share of the host's memory as the limit of each rank.
// The micro batches of the global batch are shared evenly among the data-parallel ranks; meshes for
// which this is not possible are left out. A data axis of one rank shares no states, so only the
// first ZeRO stage of the search is tried for it.
[[nodiscard]] MeshFindings search_meshes(const MeshRequest& request, const MeshSearch& search);

}  // namespace dslaunch::plan
