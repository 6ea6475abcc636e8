// Opens the tensors of the checkpoint or file that a path names. One thread; blocks on the disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/checkpoint/file_tree.h"
#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

// Returns true if PATH is a dslaunch checkpoint, or a folder that contains checkpoints. They may be
// damaged.
[[nodiscard]] bool holds_checkpoints(FileTree& tree, const std::string& path);

// Opens PATH: a checkpoint's folder, a folder with checkpoints, a .safetensors file, or a folder
// with model.safetensors or model.safetensors.index.json. In a folder with checkpoints, opens the
// newest one that is complete and finite; path() of the result names it. Throws Error{kCheckpoint}
// or Error{kInput} naming PATH and the files that were looked for and found. TREE must outlive the
// result.
[[nodiscard]] std::unique_ptr<TensorSource> open_tensor_source(FileTree& tree,
                                                               const std::string& path);
// Opens PATH, which must be a checkpoint.
[[nodiscard]] std::unique_ptr<TensorSource> open_checkpoint(FileTree& tree,
                                                            const std::string& path);

// Opens FILES: one .safetensors file, or the files of a folder. PATH stands for them in messages.
// Throws Error{kInput} naming file and cause, also if two files have a tensor of the same name.
[[nodiscard]] std::unique_ptr<TensorSource> open_safetensors(const std::string& path,
                                                             const std::vector<std::string>& files);

// Returns the folder of the checkpoint that PATH stands for: PATH itself, or the newest complete
// and finite checkpoint below PATH. Throws Error{kCheckpoint}.
[[nodiscard]] std::string choose_checkpoint(FileTree& tree, const std::string& path);

}  // namespace dslaunch::storage
