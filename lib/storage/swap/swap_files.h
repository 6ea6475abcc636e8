// The files that a rank keeps on disk while a job runs: preallocated, in private folders named by
// job and rank, gone at the end. Data path: nvme_path -> swap files -> block file -> extents.
// A lock on each file, held as long as the process lives, tells a job that runs from the leftovers
// of one that died, whatever killed it. Threads: one owner.
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
    // Removes what dead jobs of this user have left in the folders, then makes FOLDER/dslaunch-<job
    // id>-r<rank>-<i>/swap (folder 0700, file 0600) with room for CAPACITY in all. Throws
    // Error{kDisk}: no such folder, too little room (with need and free space), a live process
    // holds the name; nothing is left then. Blocks on the disk.
    SwapFiles(const SwapPlace& place, Bytes capacity);
    // Removes files and folders; what cannot be removed is logged.
    ~SwapFiles();
    SwapFiles(const SwapFiles&) = delete;
    SwapFiles& operator=(const SwapFiles&) = delete;

    [[nodiscard]] const BackingFiles& files() const { return files_; }

  private:
    void remove_all() noexcept;

    BackingFiles files_;
};

// Removes the swap folders in FOLDER that belong to this user and whose process is gone; others,
// and folders that hold anything but a swap file, are left alone. How many were removed with a file
// in them.
int remove_dead_swap_folders(const std::string& folder);

}  // namespace dslaunch::storage
