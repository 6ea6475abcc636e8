// What the config.json of a Hugging Face folder says of a decoder. Data path: config.json ->
// [here], by the reader of its family -> transformer_switches.h. Source: the config classes of
// transformers 5.23 and the formulas of its modeling_rope_utils.py. Pure, no LibTorch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// Reads TEXT, the config.json at PATH. Throws Error{kInput} that begins with PATH and names the
// field or the architecture: what is no decoder that is known here, has a switch that this version
// does not compute, or sizes that cannot be.
[[nodiscard]] TransformerConfig parse_transformer_config(const std::string& path,
                                                         std::string_view text);

// Returns the config.json for weights under the names of MODEL, which parse_transformer_config()
// made of TEXT: TEXT itself, or the text part's alone, with MODEL's `tied`.
[[nodiscard]] std::string text_of_config(const std::string& text, const TransformerConfig& model);

// The architectures that are known, for messages and help.
[[nodiscard]] std::vector<std::string> known_architectures();

}  // namespace dslaunch::storage
