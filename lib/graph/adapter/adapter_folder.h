// The folder of a low-rank adapter, as PEFT writes it: adapter_config.json and
// adapter_model.safetensors. Feeds adapters.h and takes what training made. No threads.
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

struct AdapterFolder {
    storage::AdapterConfig config;
    std::map<std::string, at::Tensor> tensors;  // by the parameter's name in the model; fp32
};

// Reads both files. Throws Error{kInput} as storage::AdapterChanges does, and for adapters that
// training here does not go on with: ranks or scales by layer, DoRA, rows of tables, experts as
// one.
[[nodiscard]] AdapterFolder load_adapter(const std::string& folder);

// Writes both files into FOLDER, made if missing, each whole or not at all. Throws Error{kDisk}.
void write_adapter(const AdapterFolder& adapter, const std::string& folder);

// Renames ADAPTER's parts, made beside MODEL, as transformers 5 names them: its modules hold the
// experts of a layer as one parameter, and some under new names. Joins pairs of single experts to
// one pair if PEFT doesn't do that when it loads them.
void to_peft_form(AdapterFolder& adapter, const storage::TransformerConfig& model);

}  // namespace dslaunch::graph
