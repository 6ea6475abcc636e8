// A checkpoint's description must hold more than its types say: names that are no paths, tensors
// that are dense, pieces that tile. Pure.
#pragma once

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// Throws Error{kCheckpoint} naming the first tensor or file that is wrong.
void check_checkpoint(const Checkpoint& checkpoint);
// The part of it that needs no files: names, shapes and places of the tensors.
void check_tensors(const Checkpoint& checkpoint);

// True for the name of a file in a checkpoint's folder: [A-Za-z0-9._-], not beginning with '.', not
// the manifest's.
[[nodiscard]] bool is_file_name(std::string_view name);

}  // namespace dslaunch::storage
