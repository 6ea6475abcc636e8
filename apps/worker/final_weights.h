// The trained weights of all ranks, written by the job's first rank: after the last step. Where it
// stands: trainer -> final weights -> weight writer.
#pragma once

#include <string>
#include <vector>

#include "graph/model.h"
#include "plan/flat_layout.h"
#include "runtime/parameter_state.h"
#include "runtime/stage_link.h"

namespace dslaunch {

struct FinalWeights {
    Model* model = nullptr;
    ParameterState* state = nullptr;
    const FlatLayout* layout = nullptr;  // of the state
    const StageLink* link = nullptr;     // null: no pipeline
    bool first_of_stage = true;
    std::vector<int> brought_earlier;  // parameters that an earlier stage has too
    std::string folder;                // empty: nothing is written
};

// By all ranks. Writes model.safetensors and model.pt; false: there is no folder.
bool write_final_weights(const FinalWeights& weights);

}  // namespace dslaunch
