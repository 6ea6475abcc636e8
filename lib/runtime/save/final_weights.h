// The trained weights of all ranks, written by the job's first rank: after the last step. Stages of
// a pipeline bring theirs one after the other, and wait for their turn for as long as the ones
// before get on. Where it stands: trainer -> final weights -> weight writer. One thread a rank.
#pragma once

#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/tensor/tensor_rank.h"
#include "plan/layout/flat_layout.h"
#include "runtime/comm/collectives.h"
#include "runtime/compute/stage_link.h"
#include "runtime/state/savable_state.h"

namespace dslaunch::runtime {

struct FinalWeights {
    graph::Model* model = nullptr;  // that the state trains
    graph::Model* whole = nullptr;  // that is written; MODEL, or what its parameters are shares of
    SavableState* state = nullptr;
    const plan::FlatLayout* layout = nullptr;   // of the state
    const StageLink* link = nullptr;            // null: no pipeline
    const graph::TensorRank* tensor = nullptr;  // null: parameters are whole
    Collectives* peers = nullptr;               // of the ranks that have this stage's parameters
    std::vector<int> brought_earlier;           // parameters that an earlier stage has too
    std::string folder;                         // empty: nothing is written
};

// By all ranks. Writes model.safetensors and model.pt; false: there is no folder. Blocks; no wait
// for another rank may be longer than its link's time limit, but all of them together may be.
// Throws Error{kDisk}, and what links and collectives throw.
bool write_final_weights(const FinalWeights& weights);

}  // namespace dslaunch::runtime
