// The folder of a low-rank adapter, as PEFT writes it: adapter_config.json and
// adapter_model.safetensors. Feeds adapters.h, model merge and generate. No threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "graph/archive/model.h"
#include "storage/adapter/adapter_config.h"

namespace dslaunch::graph {

// The ends of the names of an adapter's parameters A [r, in] and B [out, r], behind a layer's.
inline constexpr std::string_view kAdapterA = ".lora_A.weight", kAdapterB = ".lora_B.weight";

// True if NAME is that of a parameter of an adapter.
[[nodiscard]] inline bool is_of_adapter(std::string_view name) {
    return name.ends_with(kAdapterA) || name.ends_with(kAdapterB);
}

struct AdapterFolder {
    storage::AdapterConfig config;
    std::map<std::string, at::Tensor> tensors;  // by the parameter's name in the model; fp32
};

// Reads both files. Throws Error{kInput} naming the file, and the tensor that belongs to no
// adapter.
[[nodiscard]] AdapterFolder load_adapter(const std::string& folder);

// Adds ADAPTER to the weights of MODEL, in fp32, and puts the parameters of modules_to_save in
// place. Returns the number of layers. Throws Error{kInput} naming FOLDER and the tensor that fits
// nothing of the model.
int merge_adapter(Model& model, const AdapterFolder& adapter, const std::string& folder);

// Writes both files into FOLDER, made if missing, each whole or not at all. Throws Error{kDisk}.
void write_adapter(const AdapterFolder& adapter, const std::string& folder);

}  // namespace dslaunch::graph
