// Names of tensors in adapters' files: PEFT's prefix, the layer, and the tensor's role in it; and
// the names that a model here has for the same layer. Pure.
#pragma once

#include <string>
#include <string_view>

#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// The ends of the names of A and B, after the name of the layer.
inline constexpr std::string_view kAdapterA = ".lora_A.weight", kAdapterB = ".lora_B.weight";

enum class AdapterRole {
    kWhole,      // a parameter, in the place of the model's
    kA,          // [r, in] of a pair
    kB,          // [out, r]
    kBiasOfB,    // [out]
    kTableA,     // [r, rows] of a table's pair
    kTableB,     // [width, r]
    kMagnitude,  // [out], of DoRA
    kTokenRows,  // [rows, width], in the place of some of the table's
    kCopy,       // of the base's own weight: of no use
    kUnknown,
};

struct AdapterName {
    AdapterRole role = AdapterRole::kUnknown;
    std::string path;  // of the layer, "model.layers.0.mlp.up_proj"; of a parameter kWhole
    int wraps = 0;     // how many other adapters of parameters of the layer lie around it
};

// Reads NAME. It may have PEFT's prefix or not, the name of the adapter ("default"), and the names
// of wrappers of a module (compiled, sharded).
[[nodiscard]] AdapterName read_adapter_name(std::string_view name);

// Returns the name that the parameter NAME has in an adapter's file.
[[nodiscard]] std::string name_in_adapter(std::string_view name);

// Returns the name that MODEL's folder has for PATH, a layer or parameter as some release of
// transformers calls it. The decoder may be without its prefix, or part of a model of images.
// Layers of experts have had two names.
[[nodiscard]] std::string path_in_model(const TransformerConfig& model, const std::string& path);

// Return the names of MODEL's table of tokens and of its output layer.
[[nodiscard]] std::string table_of(const TransformerConfig& model);
[[nodiscard]] std::string head_of(const TransformerConfig& model);

}  // namespace dslaunch::storage
