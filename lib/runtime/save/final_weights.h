// The trained weights of all ranks, written by the job's first rank after the last step. Stages of
// a pipeline bring their weights one after the other. A stage waits for its turn while earlier
// stages make progress. Data path: trainer -> final weights -> weight writer. One thread per rank.
#pragma once

#include <string>
#include <vector>

#include "config/run/lora_config.h"
#include "graph/archive/model.h"
#include "graph/tensor/tensor_rank.h"
#include "plan/layout/flat_layout.h"
#include "runtime/comm/collectives.h"
#include "runtime/compute/stage_link.h"
#include "runtime/save/compressed_weights.h"
#include "runtime/save/saved_state.h"
#include "runtime/state/savable_state.h"

namespace dslaunch::runtime {

// The objects that provide the weights. Pointers must stay valid during the call.
struct FinalWeights {
    graph::Model* model = nullptr;  // the model that the state trains
    // The model that is written: MODEL, or the whole model if MODEL's parameters are shares.
    graph::Model* whole = nullptr;
    SavableState* state = nullptr;
    const plan::FlatLayout* layout = nullptr;   // the state's layout
    const StageLink* link = nullptr;            // null: no pipeline
    const graph::TensorRank* tensor = nullptr;  // null: parameters are whole
    Collectives* peers = nullptr;               // ranks that have this stage's parameters
    std::vector<int> brought_earlier;           // parameters that an earlier stage has too
    std::string folder;                         // empty: nothing is written
    config::LoraConfig lora{};                  // if on, only the adapter is written
    std::string base_model{};                   // the base model that the adapter names
    // The rounding and masking of weights before they are written. If its list of parameters is
    // null or empty, no weight changes.
    CompressionEnd compression{};
};

// Writes model.safetensors and model.pt, or an adapter into FOLDER/adapter. Returns false if no
// folder is given. All ranks call it. Blocks. Each wait for another rank is limited by its link's
// time limit, but all waits together may take longer. Throws Error{kDisk}, and the errors of links
// and collectives.
bool write_final_weights(const FinalWeights& weights);

// Writes the files of write_final_weights(), but with the weights and buffers of the checkpoint
// SAVED. Only the first rank calls it. The buffers of WEIGHTS.whole get the checkpoint's values, so
// no step may follow. Throws Error{kDisk} and the errors of SAVED. REQUIRES: a folder is given.
void write_saved_weights(const FinalWeights& weights, SavedState& saved);

}  // namespace dslaunch::runtime
