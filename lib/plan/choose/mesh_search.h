// The meshes that suit a job best: every way to lay pipeline, data, tensor and sequence over the
// hosts, with every ZeRO stage, schedule and, where memory is short, recompute, at the same global
// batch. Data path: mesh cost -> [here] -> mesh_text, `dslaunch plan --search`. Pure; some
// thousand choices a second.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/choose/mesh_cost.h"

namespace dslaunch::plan {

struct MeshSearch {
    std::vector<int> pipeline_sizes = {};  // empty: all
    std::vector<int> tensor_sizes = {1};   // sizes that the model's rules allow
    std::vector<int> sequence_sizes = {1};
    std::vector<int> zero_stages = {0, 1, 2, 3};
    bool each_zero_stage = false;  // true: findings have each stage, not a mesh's best one alone
    std::vector<ScheduleKind> schedules = {kScheduleKinds.begin(), kScheduleKinds.end()};
    int chunks = 2;             // chunks of a stage in an interleaved schedule
    int64_t micro_batches = 1;  // of the global batch, over all data-parallel ranks
    std::optional<Bytes> host_memory_max;
    size_t count_max = 5;
};

struct MeshFinding {
    MeshChoice choice;
    MeshCost cost;
};

struct MeshFindings {
    // The shortest steps that fit, each with another mesh or schedule, or another ZeRO stage if the
    // search asks for each; of equally short steps the one that needs less memory.
    std::vector<MeshFinding> best;
    int64_t looked_at = 0;
    int64_t fitting = 0;
    // The finding that needs least memory of a host, if nothing fits. Empty: something fits, or no
    // mesh is possible at all.
    std::optional<MeshFinding> smallest;
};

// Returns the best meshes. Ignores REQUEST.rank_memory_max: if a host has not enough memory, stages
// are cut again so that its ranks have an equal share of it. Data-parallel ranks share the micro
// batches of the global batch evenly; other meshes are left out. A data axis of one rank shares no
// states, so only the lowest of the ZeRO stages is tried.
[[nodiscard]] MeshFindings search_meshes(const MeshRequest& request, const MeshSearch& search);

}  // namespace dslaunch::plan
