// The cost of a job on a mesh of ranks: memory by tier, bytes on each axis inside hosts and between
// them, the bubble, the time of a step. Data path: model, times of segments, machine rates,
// mesh -> [here] -> mesh search, mesh_text. Pure; a choice takes a fraction of a millisecond.
// docs/scale/pipelines.md lists the assumptions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "plan/choose/stage_choice.h"
#include "plan/layout/flat_layout.h"
#include "plan/mesh/mesh.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The effect of tensor parallelism on a model, on any number of ranks that its rules allow.
struct TensorCosts {
    std::vector<bool> split;  // by parameter, true if each rank holds a part of it
    Bytes forward;            // bytes of tensors summed or gathered by a group in one micro batch
    Bytes backward;
};

struct MeshRequest {
    ModelInfo model;                    // whole model, one micro batch
    std::vector<SegmentTimes> times;    // by segment of the whole model
    StepPlanOptions options;            // options of the job; their place and ZeRO stage are
                                        // ignored
    FlatLayoutOptions layout;           // of the buckets; persistent ones only at stage 3
    std::optional<TensorCosts> tensor;  // REQUIRES: present if a choice has a tensor axis
    MachineRates rates;
    std::vector<int> node_sizes;           // ranks of each host
    Bytes program;                         // memory of a rank's program, which plans do not count
    std::optional<Bytes> rank_memory_max;  // limit of a rank; stages are cut so that none needs
                                           // more
};

struct MeshChoice {
    MeshSizes sizes;
    ScheduleKind schedule = ScheduleKind::k1F1B;
    int chunks = 1;
    int micro_batches = 1;
    int zero_stage = 0;
    bool recompute = false;  // true: every segment is recomputed
};

// Bytes that all ranks together receive in a step.
struct AxisTraffic {
    Bytes inside;   // from ranks of the same host
    Bytes between;  // from other hosts
};

// The memory of one rank. SHARED lies in its host's arena. PARAMETERS lie there too, below ZeRO
// stage 3 once for all ranks of its data group on the host.
struct MeshMemory {
    Bytes own;
    Bytes shared;  // gradients, gathered parameters
    Bytes parameters;
    Bytes disk;

    [[nodiscard]] Bytes in_memory() const { return own + shared + parameters; }
};

struct MeshCost {
    std::vector<SegmentRange> parts;
    TimedRun run;
    std::array<AxisTraffic, kMeshAxes> traffic{};
    std::vector<MeshMemory> stages;  // by stage, memory of one rank
    int fullest_stage = 0;
    Bytes host;  // memory of the host that needs most, with programs
    // Times of the stage that ends last. UNITS: seconds.
    double pipeline_s = 0;  // forwards and backwards, transfers and gaps between them
    double sums_s = 0;      // sums of gradients and gathers of parameters that nothing hides
    double update_s = 0;
    double disk_s = 0;  // reads and writes of the host that moves most
    double step_s = 0;

    [[nodiscard]] const MeshMemory& fullest() const { return stages[fullest_stage]; }
};

// Returns the cost. Throws Error{kConfig} if the model, hosts or rank_memory_max forbid CHOICE.
[[nodiscard]] MeshCost mesh_cost(const MeshRequest& request, const MeshChoice& choice);

// Returns MODEL for one rank of the tensor and sequence axes: its parts of parameters, and its
// share of products and activations. COSTS: null without a tensor axis.
[[nodiscard]] ModelInfo model_of_rank(const ModelInfo& model, const MeshSizes& sizes,
                                      const TensorCosts* costs);

}  // namespace dslaunch::plan
