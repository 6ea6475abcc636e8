// Whether the output layer of a folder's model is its embedding, by the files: as transformers 5.23
// ties the two. Data path: .safetensors files -> [here] -> model_folder.h. Pure but for reading.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "storage/files/safetensors.h"
#include "storage/huggingface/transformer_config.h"

namespace dslaunch::storage {

// The names of the two weights in the modules of a family.
[[nodiscard]] std::string embedding_name(const TransformerConfig& config);
[[nodiscard]] std::string head_name(const TransformerConfig& config);

// Returns the name in the modules of the weight that a file calls STORED; nothing: it belongs to
// the part of a model that sees images.
[[nodiscard]] std::optional<std::string> name_in_modules(const TransformerConfig& config,
                                                         const std::string& stored);

// Returns whether type, shape and numbers are the same.
[[nodiscard]] bool are_equal(const SafetensorsEntry& a, const SafetensorsEntry& b);

// Returns whether FILES have both weights, with other numbers. Throws Error{kInput} naming the file
// as parse_safetensors() does.
[[nodiscard]] bool has_own_head(const TransformerConfig& config,
                                const std::vector<std::string>& files);

}  // namespace dslaunch::storage
