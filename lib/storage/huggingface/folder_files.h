// The files of a Hugging Face folder that accompany its weights, the index of weights in several
// files, and the buffers that may be among the weights. No state; any thread.
#pragma once

#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::storage {

// The file that names the weight file of each tensor.
inline constexpr const char* kWeightIndex = "model.safetensors.index.json";

// Returns the names of FOLDER's files that accompany a Hugging Face model's weights (config.json,
// tokenizer*, …). If FOLDER cannot be listed, returns an empty list and sets ERROR.
[[nodiscard]] std::vector<std::string> config_files_of(const std::string& folder,
                                                       std::error_code* error = nullptr);

// Writes the index at PATH. ALL: the bytes of all tensors. FILE_OF: each tensor's file, relative to
// PATH's folder. Throws Error{kDisk}.
void write_weight_index(const std::string& path, Bytes all,
                        const std::map<std::string, std::string>& file_of);

// Returns true for buffers that models of transformers compute themselves: the rotary embedding's
// frequencies, causal masks and position ids. A folder may contain them, because older versions
// saved them, but does not need them.
[[nodiscard]] bool is_derived_buffer(const std::string& name);

}  // namespace dslaunch::storage
