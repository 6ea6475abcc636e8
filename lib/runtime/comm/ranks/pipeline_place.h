// Where a rank stands in a pipeline: which ranks share its stage, and which it sends to and
// receives from. Where it stands: mesh, topology -> pipeline place -> job comm. A value type.
#pragma once

#include <vector>

#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct PipelinePlace {
    int stage = 0;
    int stages = 1;
    Topology of_stage;          // the stage's ranks as a world of their own
    std::vector<int> members;   // ranks of the job in it, ascending
    std::vector<int> pipeline;  // by stage, the one that has this rank's place in its stage

    [[nodiscard]] bool is_pipeline() const { return stages > 1; }
};

// RANK's, where STAGES are the ranks of each stage, ascending and equally many. One stage: the
// world itself.
[[nodiscard]] PipelinePlace make_pipeline_place(const std::vector<int>& node_sizes,
                                                const std::vector<std::vector<int>>& stages,
                                                int rank);

}  // namespace dslaunch::runtime
