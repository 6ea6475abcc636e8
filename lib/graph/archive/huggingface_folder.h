// Loads a folder of Hugging Face as a TorchScript module: the decoder that its config.json
// describes, with weights that lie in mappings of its .safetensors files as those of
// mapped_archive.h lie in the archive. Data path: folder -> [here] -> model.h. One thread at a
// time.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "graph/archive/mapped_archive.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::graph {

// Loads the folder at PATH. SHAPES_DO: a folder without weights, and a config.json alone, get zeros
// that take no memory until they are written. Throws Error{kInput} naming the
// file: an architecture, switch or size that storage/huggingface refuses, a weight that is missing,
// has another shape, or belongs to no module.
[[nodiscard]] LoadedArchive load_huggingface(const std::string& path, bool shapes_do);

// WEIGHT as a tensor of SIZES that lies in the mapping of its file.
[[nodiscard]] at::Tensor tensor_in(const storage::FolderWeight& weight, at::IntArrayRef sizes);

}  // namespace dslaunch::graph
