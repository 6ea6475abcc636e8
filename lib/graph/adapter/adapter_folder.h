// The folder of a low-rank adapter, as PEFT writes it: adapter_config.json and
// adapter_model.safetensors. Read for adapters.h, and written after training. No threads.
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

// Reads both files. Throws Error{kInput} as storage::AdapterChanges does, and for adapters that
// training cannot continue: ranks or scales by layer, DoRA, PiSSA, OLoRA, target_parameters, rows
// of tables, changed biases.
[[nodiscard]] AdapterFolder load_adapter(const std::string& folder);

// Writes both files into FOLDER, which is created if it is missing. Each file is written whole or
// not at all. Throws Error{kDisk}.
void write_adapter(const AdapterFolder& adapter, const std::string& folder);

// Gives the modules of ADAPTER, which was trained with MODEL, the names that transformers 5 uses:
// it stores the experts of a layer as one parameter, and has new names for some modules. Joins the
// pairs of single experts into one pair if PEFT does not do so when it loads them.
void to_peft_form(AdapterFolder& adapter, const storage::TransformerConfig& model);

}  // namespace dslaunch::graph
