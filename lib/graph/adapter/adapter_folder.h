// Reads and writes the folder of a low-rank adapter in PEFT's format: adapter_config.json and
// adapter_model.safetensors. adapters.h continues the training of an adapter that was read; a job
// writes the folder after training. No threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "graph/archive/model.h"
#include "storage/adapter/adapter_config.h"
#include "storage/adapter/adapter_names.h"

namespace dslaunch::storage {
struct TransformerConfig;
}

namespace dslaunch::graph {

using storage::kAdapterA, storage::kAdapterB;

// Returns true if NAME names a parameter of an adapter.
[[nodiscard]] inline bool is_of_adapter(std::string_view name) {
    return name.ends_with(kAdapterA) || name.ends_with(kAdapterB);
}

// The contents of the folder.
struct AdapterFolder {
    storage::AdapterConfig config;
    std::map<std::string, at::Tensor> tensors;  // by the parameter's name in the model; fp32
};

// Reads both files. Throws Error{kInput} as storage::AdapterChanges does, and for an adapter that
// training cannot continue: it has ranks or scales that differ by layer, DoRA, PiSSA, OLoRA,
// target_parameters, trained rows of a table, or trained biases.
[[nodiscard]] AdapterFolder load_adapter(const std::string& folder);

// Writes both files into FOLDER, which is created if it is missing. Each file is written whole or
// not at all. Throws Error{kDisk}.
void write_adapter(const AdapterFolder& adapter, const std::string& folder);

// Renames the modules of ADAPTER, which was trained with MODEL, to the names that transformers 5
// uses. transformers 5 has new names for some modules, and stores all experts of a layer as one
// parameter. So this function also joins the pairs of single experts into one pair, unless PEFT
// joins them when it loads the adapter.
void to_peft_form(AdapterFolder& adapter, const storage::TransformerConfig& model);

}  // namespace dslaunch::graph
