// The tensors of an adapter's file beside its config: pairs of small matrices A [r, in] and
// B [out, r] for a layer each, and whole parameters of modules_to_save. Data path:
// adapter_model.safetensors -> [here] -> graph/adapter (training, model merge), infer/model
// (generate, eval, serve). Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "storage/adapter/adapter_config.h"
#include "storage/files/safetensors.h"

namespace dslaunch::storage {

// The ends of the names of A and B, after the name of the layer.
inline constexpr std::string_view kAdapterA = ".lora_A.weight", kAdapterB = ".lora_B.weight";

// Checks ENTRIES of the file at PATH, which lies beside CONFIG. Throws Error{kInput} naming PATH
// and the tensor: one that belongs to no adapter, or is no floating-point one; A without B or B
// without A; a pair of another rank than the config's r; and a file without whole parameters where
// the config has modules_to_save.
void check_adapter_tensors(const std::string& path, const AdapterConfig& config,
                           std::span<const SafetensorsEntry> entries);

}  // namespace dslaunch::storage
