// A model with an adapter merged into its weights. Data path: storage/adapter/adapter_changes.h,
// model -> [here] -> model merge, generate on GPUs. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/archive/model.h"
#include "storage/adapter/adapter_changes.h"

namespace dslaunch::graph {

struct MergedModel {
    Model model;
    int layers = 0;          // that have a pair of matrices
    int64_t vocabulary = 0;  // of a Hugging Face folder: tokens
    bool unties = false;     // the output layer is no longer the table of tokens
    bool changes_vocabulary = false;
};

// Loads the model at PATH and merges the adapter in the folder ADAPTER into it: sums are made in
// fp32 and rounded to the weights' types. Throws Error{kInput} as Model::load() and
// storage::AdapterChanges do, for a tensor that fits nothing of the model, and for a weight that
// would become NaN or infinite. In an archive it throws also for a weight with a second name, which
// would change with it.
[[nodiscard]] MergedModel load_merged(const std::string& path, const std::string& adapter,
                                      Trust trust);
// Merges ADAPTER into a MODEL in memory. Returns the number of layers.
int merge_adapter(Model& model, storage::AdapterChanges& adapter);

// A change that training with an adapter made to the base before its first step.
struct AdapterBeginning {
    storage::AdapterInit init = storage::AdapterInit::kNone;
    int64_t r = 0;
    double scale = 1;
    bool transposed = false;  // the base has the weight as [in, out]
};

// Removes from WEIGHT [OUT, in] the change that BEGINNING made to it. PEFT computes the same, but
// for the last bits of a decomposition. REQUIRES: BEGINNING.init is not kNone.
void take_out_beginning(std::span<float> weight, int64_t out, const AdapterBeginning& beginning);

}  // namespace dslaunch::graph
