// adapter_config.json, which lies beside the weights of an adapter, as PEFT writes and reads it.
// Pure: no files, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

struct AdapterConfig {
    std::string base_model;  // what the adapter was trained beside, for people
    int64_t r = 0;
    double alpha = 0;
    double dropout = 0;
    bool rslora = false;
    bool transposed = false;           // weights of the layers are [in, out] (fan_in_fan_out)
    std::vector<std::string> targets;  // names of layers, whole or their ends
    std::vector<std::string> modules_to_save;

    [[nodiscard]] double scale() const;
};

// The folder of a trained adapter below --output, and the files of any adapter's folder.
inline constexpr const char* kAdapterFolder = "adapter";
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// NAME, that of a parameter, in an adapter's file, and back; empty: it is none of an adapter.
[[nodiscard]] std::string name_in_adapter(std::string_view name);
[[nodiscard]] std::string name_in_model(std::string_view name);

// Throws Error{kInput} naming PATH and the field for text that is no such file, and for adapters
// that are something else than plain LoRA (DoRA, other ranks by layer, biases).
[[nodiscard]] AdapterConfig parse_adapter_config(const std::string& path, std::string_view text);
[[nodiscard]] std::string adapter_config_json(const AdapterConfig& config);

}  // namespace dslaunch::storage
