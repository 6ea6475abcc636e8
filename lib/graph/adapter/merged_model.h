// A model with an adapter merged into its weights. Data path: storage/adapter/adapter_changes.h,
// model -> [here] -> model merge, generate on GPUs. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/archive/model.h"
#include "storage/adapter/adapter_changes.h"

namespace dslaunch::graph {

// A merged model and what the adapter changed in it.
struct MergedModel {
    Model model;
    int layers = 0;          // layers with a pair of matrices
    int64_t vocabulary = 0;  // number of tokens, for a Hugging Face folder
    bool unties = false;     // the output layer is no longer the table of tokens
    bool changes_vocabulary = false;
};

// Loads the model at PATH and merges the adapter in the folder ADAPTER into it. Sums are computed
// in fp32 and rounded to the weights' types. Throws the errors of Model::load() and of
// storage::AdapterChanges. Throws Error{kInput} if a tensor of the adapter matches no tensor of the
// model, or if a weight would become NaN or infinite. For an archive, also throws if the adapter
// changes a weight that two modules share, because both modules would change.
[[nodiscard]] MergedModel load_merged(const std::string& path, const std::string& adapter,
                                      Trust trust);
// Merges ADAPTER into MODEL, which is in memory. Returns the number of layers with a low-rank pair.
int merge_adapter(Model& model, storage::AdapterChanges& adapter);

// The change that an adapter's initialization (PiSSA, OLoRA) made to the base before the first
// step.
struct AdapterBeginning {
    storage::AdapterInit init = storage::AdapterInit::kNone;
    int64_t r = 0;
    double scale = 1;
    bool is_transposed = false;  // the base stores the weight as [in, out]
};

// Subtracts from WEIGHT [OUT, in] the change that BEGINNING describes. PEFT computes the same,
// except for the last bits of a decomposition. REQUIRES: BEGINNING.init is not kNone.
void take_out_beginning(std::span<float> weight, int64_t out, const AdapterBeginning& beginning);

}  // namespace dslaunch::graph
