// A pipeline beside copies of itself on many ranks: the bytes between hosts, the layout on hosts,
// the time of a step. Data path: simulated pipeline and mesh -> [here] -> `dslaunch plan
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
    std::vector<Bytes> sent;       // by part except the last: bytes of its outputs for one micro
                                   // batch
    std::vector<Bytes> gradients;  // by stage, in fp32: summed over its copies once a step
    double pipeline_s = 0;         // time of a step of one pipeline
    MachineRates rates = {};       // the link's rate is that of a rank
};

struct ScaleCost {
    int ranks = 0;
    int hosts = 0;
    int data = 0;                 // pipelines beside each other
    Bytes activations_sent;       // with their gradients, between hosts, per step, all ranks
                                  // together
    Bytes gradients_sent;         // gradients of parameters, counted the same way
    int pipelines_on_host = 0;    // pipelines that lie on one host
    int data_groups_on_host = 0;  // stages whose copies all lie on one host
    // A step with the sums of gradients after the last backward, each over a ring as wide as its
    // slowest link: an upper bound, for a run hides them behind backwards. Equal to pipeline_s if
    // the link is not known.
    double step_s = 0;
};

// MESH has shape.stages ranks along its pipeline axis and any number of copies along shard and
// replica.
[[nodiscard]] ScaleCost scale_cost(const ScaleRequest& request, const Mesh& mesh);

}  // namespace dslaunch::plan
