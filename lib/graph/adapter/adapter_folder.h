// The folder of a low-rank adapter, as PEFT writes it: adapter_config.json and
// adapter_model.safetensors. Feeds adapters.h, model merge and generate. No threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "graph/archive/model.h"
#include "storage/adapter/adapter_config.h"
#include "storage/adapter/adapter_tensors.h"

namespace dslaunch::graph {

using storage::kAdapterA, storage::kAdapterB;

// True if NAME is that of a parameter of an adapter.
[[nodiscard]] inline bool is_of_adapter(std::string_view name) {
    return name.ends_with(kAdapterA) || name.ends_with(kAdapterB);
}

struct AdapterFolder {
    storage::AdapterConfig config;
    std::map<std::string, at::Tensor> tensors;  // by the parameter's name in the model; fp32
};

// Reads both files. Throws Error{kInput} naming the file, and as check_adapter_tensors() does.
[[nodiscard]] AdapterFolder load_adapter(const std::string& folder);

// Adds ADAPTER to the weights of MODEL, in fp32, and puts the parameters of modules_to_save in
// place. Returns the number of layers. Throws Error{kInput} naming FOLDER and the tensor that fits
// nothing of the model, whose weight has a second name, which would change with it, or that would
// make a weight NaN or infinite.
int merge_adapter(Model& model, const AdapterFolder& adapter, const std::string& folder);

// The same of the adapter in FOLDER, into MODEL as it was loaded from MODEL_PATH. Throws also for
// an adapter of an output layer that is the table of tokens.
int merge_adapter_folder(Model& model, const std::string& model_path, const std::string& folder);

// Writes both files into FOLDER, made if missing, each whole or not at all. Throws Error{kDisk}.
void write_adapter(const AdapterFolder& adapter, const std::string& folder);

}  // namespace dslaunch::graph
