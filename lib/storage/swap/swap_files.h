// The files that a rank keeps on disk while a job runs: preallocated, in private folders named
// after job and rank, removed at the end. Data path: nvme_path -> swap files -> block file ->
// extents. Each file is locked while its process lives, so that a running job can be told from the
// leftovers of a job that has ended. Threads: one owner.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "storage/disk/backing_files.h"

namespace dslaunch::storage {

// The folders for a rank's files, and the names that they get.
struct SwapPlace {
    std::vector<std::string> folders;  // nvme_path: existing folders; data are striped over all
    std::string job_id;                // a plain word of [A-Za-z0-9._-], unique per start
    int rank = 0;
    Bytes stripe = mib(4);  // used with several folders; a multiple of kBlockAlignment
};

// The owner of a rank's files.
class SwapFiles {
  public:
    // Removes the leftovers of this user's dead jobs from the folders. Then makes
    // FOLDER/dslaunch-<job id>-r<rank>-<i>/swap (folder 0700, file 0600) in each folder. All files
    // together have room for CAPACITY. Throws Error{kDisk} if a folder does not exist, if there is
    // too little room (with need and free space), or if a live process uses the name of a new
    // folder; then nothing is left on the disk. Blocks on the disk.
    SwapFiles(const SwapPlace& place, Bytes capacity);
    // Removes files and folders, and logs what it cannot remove.
    ~SwapFiles();
    SwapFiles(const SwapFiles&) = delete;
    SwapFiles& operator=(const SwapFiles&) = delete;

    // Returns the open files, which are valid as long as this object lives.
    [[nodiscard]] const BackingFiles& files() const { return files_; }

  private:
    void remove_all() noexcept;

    BackingFiles files_;
};

// Removes the swap folders in FOLDER that belong to this user and whose process is gone. Keeps all
// other folders, and folders that contain anything but a swap file. Returns how many of the removed
// folders had a swap file.
int remove_dead_swap_folders(const std::string& folder);

}  // namespace dslaunch::storage
