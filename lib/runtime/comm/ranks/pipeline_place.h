// A rank's place in a pipeline: the ranks that share its stage, and those it sends to and receives
// from. Data path: mesh, topology -> pipeline place -> job comm. A value type.
#pragma once

#include <vector>

#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct PipelinePlace {
    int stage = 0;
    int stages = 1;
    Topology of_stage;          // the stage's ranks as a world of their own
    std::vector<int> members;   // the job's ranks in the stage, ascending
    std::vector<int> pipeline;  // one rank per stage, at this rank's place in its stage

    [[nodiscard]] bool is_pipeline() const { return stages > 1; }
};

// Returns RANK's place. STAGES are the ranks of each stage, ascending and equally many. One stage
// is the world itself.
[[nodiscard]] PipelinePlace make_pipeline_place(const std::vector<int>& node_sizes,
                                                const std::vector<std::vector<int>>& stages,
                                                int rank);

}  // namespace dslaunch::runtime
