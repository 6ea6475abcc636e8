// adapter_config.json, which lies beside the weights of an adapter, as PEFT writes and reads it.
// Pure: no files, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/adapter/target_names.h"

namespace dslaunch::storage {

// The change that training made to the base's weights before its first step. PEFT makes it again
// when it loads the adapter, so that base and adapter give the trained model.
enum class AdapterInit {
    kNone,   // nothing
    kPissa,  // took out the part of the r largest singular values (arXiv:2404.02948)
    kOlora,  // took out the first r steps of a QR decomposition (arXiv:2406.01775)
};

struct AdapterConfig {
    std::string base_model;  // the model that the adapter was trained beside, for people
    int64_t r = 0;
    double alpha = 0;
    double dropout = 0;
    bool rslora = false;
    bool transposed = false;           // weights of the layers are [in, out] (fan_in_fan_out)
    std::vector<std::string> targets;  // names of layers, whole or their ends
    std::vector<std::string> modules_to_save;
    AdapterInit init = AdapterInit::kNone;
    bool dora = false;          // rows of the changed weights have a magnitude (arXiv:2402.09353)
    bool tied = false;          // ensure_weight_tying
    TargetNames target_names;   // which layers have an adapter, by all fields that say it
    NamedNumbers rank_pattern;  // ranks of layers that differ from r
    NamedNumbers alpha_pattern;
    std::vector<std::string> target_parameters;
    // Trained rows of tables, by the end of the table's name; "": the table of tokens.
    std::vector<std::pair<std::string, std::vector<int64_t>>> token_rows;

    [[nodiscard]] double scale() const { return scale(r, alpha); }
    // Returns the rank of the layer PATH, or of a parameter in it.
    [[nodiscard]] int64_t rank_of(std::string_view path) const;
    [[nodiscard]] double scale_of(std::string_view path) const;
    // True if all layers have the config's rank and scale, and the adapter has nothing but pairs of
    // matrices and whole parameters.
    [[nodiscard]] bool is_plain() const;

  private:
    [[nodiscard]] double scale(int64_t rank, double of_alpha) const;
};

// The folder of a trained adapter below --output, and the files of any adapter's folder.
inline constexpr const char* kAdapterFolder = "adapter";
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// Throws Error{kInput} naming PATH and the field if the text is not such a file, if the adapter is
// not a LoRA, and if a field changes what an adapter computes in an unknown way.
[[nodiscard]] AdapterConfig parse_adapter_config(const std::string& path, std::string_view text);
[[nodiscard]] std::string adapter_config_json(const AdapterConfig& config);

}  // namespace dslaunch::storage
