// The cost of a job on a mesh of ranks: memory by tier, bytes on each axis inside hosts and between
// them, the bubble, the time of a step. Data path: model, times of segments, machine rates,
// mesh -> [here] -> mesh search, mesh_text. Pure; a choice takes a fraction of a millisecond.
// docs/pipelines.md says what is assumed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "plan/mesh/mesh.h"
#include "plan/predict/pipeline_costs.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The effect of tensor parallelism on a model, on any number of ranks that its rules allow.
struct TensorCosts {
    std::vector<bool> split;  // by parameter: each rank holds its part
    Bytes forward;            // of tensors summed or gathered by a group in one micro batch
    Bytes backward;
};

struct MeshRequest {
    ModelInfo model;                    // whole, one micro batch
    std::vector<SegmentTimes> times;    // by segment, whole
    StepPlanOptions options;            // of the job; place and ZeRO stage in it do not matter
    std::optional<TensorCosts> tensor;  // REQUIRES: given where a choice has a tensor axis
    MachineRates rates;
    std::vector<int> node_sizes;           // ranks of each host
    Bytes program;                         // of a rank, beside what plans count
    std::optional<Bytes> rank_memory_max;  // of a rank; stages are cut so that none needs more
};

struct MeshChoice {
    MeshSizes sizes;
    ScheduleKind schedule = ScheduleKind::k1F1B;
    int chunks = 1;
    int micro_batches = 1;
    int zero_stage = 0;
    bool recompute = false;  // every segment
};

// Bytes that all ranks together receive in a step.
struct AxisTraffic {
    Bytes inside;   // from ranks of the same host
    Bytes between;  // from other hosts
};

// The memory of one rank. SHARED lies in its host's arena, and PARAMETERS once for all ranks of its
// data group there, below ZeRO stage 3.
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
    std::vector<MeshMemory> stages;  // of a rank of each
    int fullest_stage = 0;
    Bytes host;  // memory of the host that needs most, programs with it
    // Times of the stage that ends last. UNITS: seconds.
    double pipeline_s = 0;  // forwards and backwards, transfers and gaps between them
    double sums_s = 0;      // gradients and parameters that nothing hides
    double update_s = 0;
    double disk_s = 0;  // what goes to disk and back, of the host that moves most
    double step_s = 0;

    [[nodiscard]] const MeshMemory& fullest() const { return stages[fullest_stage]; }
};

// Throws Error{kConfig} where the model, the hosts or rank_memory_max do not allow CHOICE.
[[nodiscard]] MeshCost mesh_cost(const MeshRequest& request, const MeshChoice& choice);

// MODEL as one rank of the tensor and sequence axes has it: parameters in parts, and of products
// and activations its share. COSTS: null without a tensor axis.
[[nodiscard]] ModelInfo model_of_rank(const ModelInfo& model, const MeshSizes& sizes,
                                      const TensorCosts* costs);

}  // namespace dslaunch::plan
