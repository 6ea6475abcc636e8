// The checkpoints of a run: step-N folders below one root. Decides how a checkpoint is made, and
// which ones are removed. begin() -> every rank writes its files into the folder -> commit(). Only
// rank 0 uses it; one thread at a time, one save at a time. A crash at any moment leaves every
// committed checkpoint as it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/checkpoint/file_tree.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// A committed folder, as its manifest and the sizes of its files describe it.
struct StoredCheckpoint {
    std::string folder;
    int64_t step = 0;
    Bytes bytes;
    bool is_complete = false;  // manifest and all files exist, with right sizes
    bool is_finite = false;
    bool is_verified = false;  // all of it was read and its hashes matched
    std::string fault;         // why it is not complete
};

// Returns the checkpoint in FOLDER, whatever the folder's name is: it may have been set aside or
// copied. The step is -1 if the manifest cannot be read.
[[nodiscard]] StoredCheckpoint checkpoint_in(const FileTree& tree, const std::string& folder);

// A request to be the only run that saves checkpoints below a root.
struct CheckpointClaim {
    std::string owner = "another run";      // for people: `job a, attempt 0, on host h`
    std::chrono::milliseconds wait_max{0};  // for the present owner, such as an ending run
    // Called once, with a line that names the owner whose end is awaited.
    std::function<void(const std::string& line)> told = {};
};

// Locks the folder ROOT for as long as the returned lock lives; creates the folder if it is
// missing. Throws Error{kCheckpoint}, naming the owner, if another run saves there, and
// Error{kDisk} if the disk fails. Blocks for at most CLAIM.wait_max.
[[nodiscard]] std::unique_ptr<FileLock> claim_checkpoints(FileTree& tree, const std::string& root,
                                                          const CheckpointClaim& claim = {});

// Throws Error{kCheckpoint} if a run would spoil the folder OUTPUT: if it has complete checkpoints,
// if it has files that the result would replace (weights, an adapter, a run.json that dslaunch did
// not write, and the names in COPIED, which config_files_of_result() gives), or if it is
// inside a run. If RESUMES, checkpoints and other files of their run are allowed; a folder without
// checkpoints whose subfolders are runs is refused, and the error names these.
void require_unused_output(FileTree& tree, const std::string& output, bool resumes = false,
                           std::span<const std::string> copied = {});

// The checkpoints below one root, of which it makes and removes some.
class CheckpointStore {
  public:
    // KEEP is the number of complete checkpoints that are kept; 0: all. Creates nothing before
    // begin(), which locks ROOT unless CLAIM is given. TREE must outlive the store.
    CheckpointStore(FileTree& tree, std::string root, int64_t keep,
                    std::unique_ptr<FileLock> claim = nullptr);

    // Makes the folder for the files of a save, removes what the saves of crashed runs have left,
    // and returns the folder. NEED is the total size of all ranks' files. Throws Error{kDisk} if
    // they do not fit. ID is the name of this save, [0-9a-z-].
    [[nodiscard]] std::string begin(int64_t step, const std::string& id, Bytes need);
    // Makes a checkpoint from the files of all ranks, which must be durable, lets `latest` name it,
    // and removes the checkpoints that are no longer kept. Renames later steps, which another run
    // has left there, to ROOT/abandoned-ID-step-M. Replaces a checkpoint of the same step. Returns
    // its folder, ROOT/step-N. Throws Error{kDisk}; the save then counts only if list() reports it
    // as complete.
    std::string commit(const Checkpoint& checkpoint);
    // Removes the folder of a failed save. Parts that cannot be removed stay until the next
    // begin().
    void abandon(int64_t step, const std::string& id) noexcept;

    // Returns the checkpoints, newest first.
    [[nodiscard]] std::vector<StoredCheckpoint> list() const;

  private:
    void remove_leftovers();
    void set_aside_later(int64_t step, const std::string& id);
    void put_in_place(const std::string& from, const std::string& to, const std::string& id);
    void point_latest(const Checkpoint& checkpoint);
    void remove_old(const std::string& newest) noexcept;

    FileTree& tree_;
    std::string root_;
    int64_t keep_;
    std::unique_ptr<FileLock> claim_;
};

// Returns the checkpoints in ALL, in any order, that are to be removed. A complete finite
// checkpoint is removed unless it is one of the newest KEEP, the newest verified one or the newest
// finite one. Any other checkpoint is removed only if a newer one is complete and finite. If KEEP
// is 0, nothing is removed. Pure.
[[nodiscard]] std::vector<std::string> checkpoints_to_remove(
    const std::vector<StoredCheckpoint>& all, int64_t keep);

}  // namespace dslaunch::storage
