// Files of checkpoints between hosts that share no file system: each host writes its own, and rank
// 0's disk has all of them; a resume copies them to the others. By all ranks, between steps, in the
// compute lane's thread. Blocks.
#pragma once

#include <span>
#include <string>

#include "runtime/comm/collectives.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::runtime {

// Files that ranks of other hosts than the first have written into FOLDER of their disks, OWN those
// of this rank, come to FOLDER of rank 0's, durably; FOLDER is gone on the other hosts then. Empty:
// done; else why not, the same on all ranks.
[[nodiscard]] std::string bring_to_first(storage::FileTree& tree, Collectives& collectives,
                                         const std::string& folder,
                                         std::span<const storage::CheckpointFile> own);

// The files in FOLDER of rank 0's disk come to INTO, a new folder, on every other host. Throws
// Error{kCheckpoint} where one cannot be written.
void bring_to_all(storage::FileTree& tree, Collectives& collectives, const std::string& folder,
                  const std::string& into);

}  // namespace dslaunch::runtime
