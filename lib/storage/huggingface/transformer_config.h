// The decoder that a Hugging Face folder's config.json describes. Data path: config.json -> the
// reader of its family [here] -> transformer_switches.h. Source: the config classes of transformers
// 5.23 and the formulas of its modeling_rope_utils.py. Pure, no LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// Reads TEXT, the config.json at PATH. Throws Error{kInput} that begins with PATH and names the
// field or the architecture if the model is not a known decoder, uses a switch that this version
// does not compute, or has impossible sizes.
[[nodiscard]] TransformerConfig parse_transformer_config(const std::string& path,
                                                         std::string_view text);

// Returns the config.json for weights that have MODEL's names. TEXT is the config.json from which
// parse_transformer_config() made MODEL. The result is TEXT or only its text part, with two
// changes. It has no settings for quantization. It ties the output layer to the embedding if MODEL
// does, whatever TEXT says.
[[nodiscard]] std::string text_of_config(const std::string& text, const TransformerConfig& model);

// Returns the known architectures, for messages and help.
[[nodiscard]] std::vector<std::string> known_architectures();

}  // namespace dslaunch::storage
