// Files of checkpoints between hosts that share no file system. Each host writes its own, and rank
// 0's disk gets all of them. A resume copies them to the others. All ranks call these functions,
// between steps, in the compute lane's thread. They block.
#pragma once

#include <span>
#include <string>

#include "runtime/comm/collectives.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::runtime {

// Brings the files that ranks of other hosts have written into FOLDER, each host's own, durably to
// rank 0's FOLDER. OWN are this rank's files. FOLDER is then gone on the other hosts.
// Returns an empty text if all went well, else the reason of the failure, the same on all ranks.
[[nodiscard]] std::string bring_to_first(storage::FileTree& tree, Collectives& collectives,
                                         const std::string& folder,
                                         std::span<const storage::CheckpointFile> own);

// Copies the files in FOLDER of rank 0's disk to INTO, a new folder, on every other host. Throws
// Error{kCheckpoint} if one cannot be written.
void bring_to_all(storage::FileTree& tree, Collectives& collectives, const std::string& folder,
                  const std::string& into);

}  // namespace dslaunch::runtime
