// The tensors that a path names: chooses the checkpoint or file. One thread; blocks on the disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/checkpoint/file_tree.h"
#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

// True if PATH is a checkpoint of ours or a folder that holds some, damaged ones too.
[[nodiscard]] bool holds_checkpoints(FileTree& tree, const std::string& path);

// Opens PATH: a checkpoint's folder, a folder with checkpoints (the newest complete finite one,
// which `path()` then names), a .safetensors file, or a folder with model.safetensors or
// model.safetensors.index.json. Throws Error{kCheckpoint} or Error{kInput} naming PATH, the files
// that were looked for and found. TREE must outlive it.
[[nodiscard]] std::unique_ptr<TensorSource> open_tensor_source(FileTree& tree,
                                                               const std::string& path);
// Opens PATH, which must be a checkpoint.
[[nodiscard]] std::unique_ptr<TensorSource> open_checkpoint(FileTree& tree,
                                                            const std::string& path);

// Opens FILES, one .safetensors file or a folder's, which PATH names in messages.
// Throws Error{kInput} naming file and cause; also when two files have a tensor of one name.
[[nodiscard]] std::unique_ptr<TensorSource> open_safetensors(const std::string& path,
                                                             const std::vector<std::string>& files);

// Returns the folder of the one checkpoint that PATH means: itself, or the newest complete finite
// one below it. Throws Error{kCheckpoint}.
[[nodiscard]] std::string choose_checkpoint(FileTree& tree, const std::string& path);

}  // namespace dslaunch::storage
