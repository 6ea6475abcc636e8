// The transfer of checkpoint files between hosts that share no file system. When saving, each host
// writes its own files, and all of them are collected on rank 0's disk. A resume copies them to the
// other hosts. All ranks call these functions, between steps, in the compute lane's thread. They
// block.
#pragma once

#include <span>
#include <string>

#include "runtime/comm/collectives.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::runtime {

// Collects the files of a checkpoint durably in FOLDER on rank 0's disk. OWN are this rank's files.
// Before the call, each rank of another host has written its files into FOLDER on its own disk;
// these folders are removed afterwards. Returns an empty text on success, otherwise the reason of
// the failure. The text is the same on all ranks.
[[nodiscard]] std::string bring_to_first(storage::FileTree& tree, Collectives& collectives,
                                         const std::string& folder,
                                         std::span<const storage::CheckpointFile> own);

// Copies the files in FOLDER on rank 0's disk to INTO, a new folder, on every other host. Throws
// Error{kCheckpoint} if a file cannot be written.
void bring_to_all(storage::FileTree& tree, Collectives& collectives, const std::string& folder,
                  const std::string& into);

}  // namespace dslaunch::runtime
