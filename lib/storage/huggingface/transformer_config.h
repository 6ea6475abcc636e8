// The decoder that a Hugging Face folder's config.json describes. Data path: config.json -> [here],
// by the reader of its family -> transformer_switches.h. Source: the config classes of transformers
// 5.23 and the formulas of its modeling_rope_utils.py. Pure, no LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// Reads TEXT, the config.json at PATH. Throws Error{kInput} that begins with PATH and names the
// field or the architecture if it is not a known decoder, has a switch that this version does not
// compute, or has impossible sizes.
[[nodiscard]] TransformerConfig parse_transformer_config(const std::string& path,
                                                         std::string_view text);

// Returns the config.json for weights under the names of MODEL, which parse_transformer_config()
// made from TEXT: TEXT itself, or only the text part's, with MODEL's `tied`.
[[nodiscard]] std::string text_of_config(const std::string& text, const TransformerConfig& model);

// Returns the architectures that are known, for messages and help.
[[nodiscard]] std::vector<std::string> known_architectures();

}  // namespace dslaunch::storage
