// The files that a rank keeps on disk while a job runs: preallocated, in private folders named by
// job and rank, gone at the end. Data path: nvme_path -> swap files -> block file -> extents. A
// lock on each file, held while the process lives, tells a running job from the leftovers of one
// that died, however it ended. Threads: one owner.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "storage/disk/backing_files.h"

namespace dslaunch::storage {

struct SwapPlace {
    std::vector<std::string> folders;  // nvme_path: existing folders; several are striped over
    std::string job_id;                // a plain word of [A-Za-z0-9._-], unique per start
    int rank = 0;
    Bytes stripe = mib(4);  // used with several folders; a multiple of kBlockAlignment
};

class SwapFiles {
  public:
    // Removes the leftovers of this user's dead jobs from the folders, then makes
    // FOLDER/dslaunch-<job id>-r<rank>-<i>/swap (folder 0700, file 0600) with room for CAPACITY in
    // all. Throws Error{kDisk} if there is no such folder, too little room (with need and free
    // space), or a live process with that name; nothing is left then. Blocks on the disk.
    SwapFiles(const SwapPlace& place, Bytes capacity);
    // Removes files and folders, and logs the ones that it cannot remove.
    ~SwapFiles();
    SwapFiles(const SwapFiles&) = delete;
    SwapFiles& operator=(const SwapFiles&) = delete;

    [[nodiscard]] const BackingFiles& files() const { return files_; }

  private:
    void remove_all() noexcept;

    BackingFiles files_;
};

// Removes the swap folders in FOLDER that belong to this user and whose process is gone. It keeps
// others, and folders with anything but a swap file. Returns how many removed ones had a file.
int remove_dead_swap_folders(const std::string& folder);

}  // namespace dslaunch::storage
