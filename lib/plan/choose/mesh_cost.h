// The cost of a job on a mesh of ranks: the memory in each tier, the bytes on each axis within
// hosts and between them, the pipeline's bubble, and the time of a step. Data path: model, times of
// segments, machine rates, mesh -> [here] -> mesh search, mesh_text. Pure. The cost of one choice
// is computed in a fraction of a millisecond. docs/scale/pipelines.md lists the assumptions.
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

// The effect of tensor parallelism on a model. It is the same for every number of tensor ranks that
// the model's rules allow.
struct TensorCosts {
    std::vector<bool> split;  // by parameter, true if each rank holds a part of it
    Bytes forward;            // bytes that a group sums or gathers in one micro batch
    Bytes backward;
};

// A job and its machines, for which the costs of meshes are computed.
struct MeshRequest {
    ModelInfo model;                    // whole model, one micro batch
    std::vector<SegmentTimes> times;    // by segment of the whole model
    StepPlanOptions options;            // options of the job; rank, hosts and ZeRO stage are
                                        // ignored
    FlatLayoutOptions layout;           // persistent buckets are used only at stage 3
    std::optional<TensorCosts> tensor;  // REQUIRES: set if a choice has a tensor axis
    MachineRates rates;
    std::vector<int> node_sizes;           // ranks of each host
    Bytes program;                         // memory of a rank's program, which plans do not count
    std::optional<Bytes> rank_memory_max;  // limit of a rank; stages are cut so that no rank needs
                                           // more
};

// A mesh, and the settings of the job that runs on it.
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

// The memory of one rank. SHARED and PARAMETERS are in its host's arena, the memory that all ranks
// of the host share. Below ZeRO stage 3, PARAMETERS are there only once for all ranks of the same
// data group on that host.
struct MeshMemory {
    Bytes own;
    Bytes shared;  // gradients, gathered parameters
    Bytes parameters;
    Bytes disk;

    // Returns the bytes of everything that is not on disk.
    [[nodiscard]] Bytes in_memory() const { return own + shared + parameters; }
};

// The cost of a job on a mesh. `parts` contains the range of segments of each part of the model.
struct MeshCost {
    std::vector<SegmentRange> parts;
    TimedRun run;
    std::array<AxisTraffic, kMeshAxes> traffic{};
    std::vector<MeshMemory> stages;  // by stage, the memory of one rank
    int fullest_stage = 0;
    Bytes host;  // memory of the host that needs most, programs included
    // Times of the stage that ends last. UNITS: seconds.
    double pipeline_s = 0;  // forwards, backwards, transfers, and the gaps between them
    double sums_s = 0;      // sums of gradients and gathers of parameters that nothing hides
    double update_s = 0;
    double disk_s = 0;  // reads and writes of the host that moves the most bytes
    double step_s = 0;

    // Returns the memory of a rank in the stage that needs most.
    [[nodiscard]] const MeshMemory& fullest() const { return stages[fullest_stage]; }
};

// Returns the cost of CHOICE. Throws Error{kConfig} if the model, the hosts or rank_memory_max do
// not allow it.
[[nodiscard]] MeshCost mesh_cost(const MeshRequest& request, const MeshChoice& choice);

// Returns MODEL as it is on one rank of the tensor and sequence axes: with the rank's parts of the
// parameters, and its share of the matrix products and activations. COSTS may be null if there is
// no tensor axis.
[[nodiscard]] ModelInfo model_of_rank(const ModelInfo& model, const MeshSizes& sizes,
                                      const TensorCosts* costs);

}  // namespace dslaunch::plan
