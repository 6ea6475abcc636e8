// A pipeline beside copies of itself on many ranks: what crosses hosts, what a rank holds, how long
// a step takes. Data path: simulated pipeline and mesh -> [here] -> `dslaunch plan
// --simulate`. Pure; thousands of ranks take milliseconds, for copies of a pipeline run alike.
#pragma once

#include <vector>

#include "plan/mesh/mesh.h"
#include "plan/pipeline/stage_choice.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

struct ScaleRequest {
    ScheduleKind schedule = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::vector<Bytes> sent;       // behind each part but the last: outputs of one micro batch
    std::vector<Bytes> gradients;  // of each stage, fp32: summed over its copies once a step
    double pipeline_s = 0;         // a step of one pipeline
    MachineRates rates = {};       // its link is a rank's
};

struct ScaleCost {
    int ranks = 0;
    int hosts = 0;
    int data = 0;                 // pipelines beside each other
    Bytes activations_sent;       // and their gradients, between hosts, a step, all ranks together
    Bytes gradients_sent;         // of parameters: the same
    int pipelines_on_host = 0;    // pipelines that lie on one host
    int data_groups_on_host = 0;  // stages whose copies all do
    // A step with the sums of gradients after the last backward, each over a ring as wide as its
    // slowest link: an upper bound, for a run hides them behind backwards. It is pipeline_s where
    // the link is not known.
    double step_s = 0;
};

// MESH: of shape.stages along its pipeline axis, any number of copies along shard and replica.
[[nodiscard]] ScaleCost scale_cost(const ScaleRequest& request, const Mesh& mesh);

}  // namespace dslaunch::plan
