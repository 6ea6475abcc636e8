// The names of tensors in adapters' files (PEFT's prefix, the layer, the tensor's role in it), and
// the names of the same layers in our models. Pure.
#pragma once

#include <string>
#include <string_view>

#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// An adapter's file appends these texts to the name of a layer to name the layer's matrices A and
// B.
inline constexpr std::string_view kAdapterA = ".lora_A.weight", kAdapterB = ".lora_B.weight";

// The role of a tensor in an adapter. The comments give the tensor's shape.
enum class AdapterRole {
    kWhole,      // a parameter that replaces the model's
    kA,          // [r, in] of a pair
    kB,          // [out, r]
    kBiasOfB,    // [out]
    kTableA,     // [r, rows] of a table's pair
    kTableB,     // [width, r]
    kMagnitude,  // [out], of DoRA
    kTokenRows,  // [rows, width], which replace rows of a table
    kCopy,       // a copy of the base's weight: not used
    kUnknown,
};

// The parts of a tensor's name in an adapter's file.
struct AdapterName {
    AdapterRole role = AdapterRole::kUnknown;
    std::string path;  // a layer, "model.layers.0.mlp.up_proj"; a parameter if kWhole
    int wraps = 0;     // the number of the layer's other adapters that wrap this adapter
};

// Parses NAME, which may contain PEFT's prefix, the name of the adapter ("default"), and the names
// of wrappers around a module (compiled, sharded).
[[nodiscard]] AdapterName read_adapter_name(std::string_view name);

// Returns the name that the parameter NAME has in an adapter's file.
[[nodiscard]] std::string name_in_adapter(std::string_view name);

// Returns the name of the layer or parameter PATH in MODEL's folder. PATH may be a name of any
// release of transformers; some releases named layers of experts differently. PATH may lack the
// decoder's prefix, or have the prefix of a decoder in a model with images.
[[nodiscard]] std::string path_in_model(const TransformerConfig& model, const std::string& path);

// Return the names of MODEL's table of tokens and of its output layer.
[[nodiscard]] std::string table_of(const TransformerConfig& model);
[[nodiscard]] std::string head_of(const TransformerConfig& model);

}  // namespace dslaunch::storage
