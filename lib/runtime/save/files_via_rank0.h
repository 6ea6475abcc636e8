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

// Copies files of a checkpoint durably to FOLDER on rank 0's disk: ranks of other hosts have
// written them into FOLDER on their own disks. OWN are this rank's files. FOLDER is then removed on
// the other hosts. Returns an empty text on success, otherwise the reason of the failure; the text
// is the same on all ranks.
[[nodiscard]] std::string bring_to_first(storage::FileTree& tree, Collectives& collectives,
                                         const std::string& folder,
                                         std::span<const storage::CheckpointFile> own);

// Copies the files in FOLDER on rank 0's disk to INTO, a new folder, on every other host. Throws
// Error{kCheckpoint} if a file cannot be written.
void bring_to_all(storage::FileTree& tree, Collectives& collectives, const std::string& folder,
                  const std::string& into);

}  // namespace dslaunch::runtime
