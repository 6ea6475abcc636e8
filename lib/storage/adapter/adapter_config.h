// The file adapter_config.json, stored beside an adapter's weights, as PEFT writes and reads it.
// Pure: no files, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/adapter/target_names.h"
#include "storage/files/file_names.h"

namespace dslaunch::storage {

// The change that the initialization of the adapter made to the base weights. PEFT repeats the
// change when it loads the adapter, because the adapter was trained for the changed weights.
enum class AdapterInit {
    kNone,   // nothing
    kPissa,  // subtracted the part of the r largest singular values (arXiv:2404.02948)
    kOlora,  // subtracted the first r steps of a QR decomposition (arXiv:2406.01775)
};

// The fields of the file that change what an adapter computes.
struct AdapterConfig {
    std::string base_model;  // the base model with which the adapter was trained
    int64_t r = 0;
    double alpha = 0;
    double dropout = 0;
    bool is_rslora = false;
    bool is_transposed = false;        // weights of the layers are [in, out] (fan_in_fan_out)
    std::vector<std::string> targets;  // names of layers, or ends of names
    std::vector<std::string> modules_to_save;
    AdapterInit init = AdapterInit::kNone;
    bool is_dora = false;       // rows of the changed weights have a magnitude (arXiv:2402.09353)
    bool is_tied = false;       // ensure_weight_tying
    TargetNames target_names;   // the layers that have an adapter, by all fields
    NamedNumbers rank_pattern;  // ranks of layers whose rank is not r
    NamedNumbers alpha_pattern;
    std::vector<std::string> target_parameters;
    // For each table, the end of its name and the indices of its trained rows. The name "" means
    // the token table.
    std::vector<std::pair<std::string, std::vector<int64_t>>> token_rows;

    // Returns the factor of a pair's product: alpha / r, or alpha / sqrt(r) with rslora.
    [[nodiscard]] double scale() const { return scale(r, alpha); }
    // Returns the rank of the layer PATH, or of a parameter in it.
    [[nodiscard]] int64_t rank_of(std::string_view path) const;
    // Returns the factor for the layer PATH, or for a parameter in it.
    [[nodiscard]] double scale_of(std::string_view path) const;
    // Returns true if all layers have the config's rank and scale, and the adapter contains only
    // pairs of matrices and whole parameters.
    [[nodiscard]] bool is_plain() const;

  private:
    [[nodiscard]] double scale(int64_t rank, double of_alpha) const;
};

// Parses an adapter_config.json. Throws Error{kInput} naming PATH and the field if TEXT is not such
// a file, if the adapter is not a LoRA, or if a field has an unknown effect on the adapter's
// results.
[[nodiscard]] AdapterConfig parse_adapter_config(const std::string& path, std::string_view text);
// Returns the text of a file for CONFIG that PEFT can read.
[[nodiscard]] std::string adapter_config_json(const AdapterConfig& config);

}  // namespace dslaunch::storage
