// The checkpoints of a run: step-N folders below one root, how one is made, and which may go.
// begin() -> every rank writes its files into the folder -> commit(). Rank 0's; one thread at a
// time, one save at a time. A crash at any moment leaves every committed checkpoint as it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
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
    bool complete = false;  // manifest and files are there, sizes are right
    bool finite = false;
    bool verified = false;  // all of it was read and found whole
    std::string fault;      // why it is not complete
};

// Returns the checkpoint in FOLDER, whatever its name is: it may be set aside, or a copy. Its step
// is -1 if the manifest cannot be read.
[[nodiscard]] StoredCheckpoint checkpoint_in(const FileTree& tree, const std::string& folder);

// A request to be the only run that saves below a root of checkpoints.
struct CheckpointClaim {
    std::string owner = "another run";      // a line for people, as `job a, attempt 0, on host h`
    std::chrono::milliseconds wait_max{0};  // for its present owner, such as a cut-off run
    // Gets one line that says which owner is waited for.
    std::function<void(const std::string& line)> told = {};
};

// Takes ROOT, made if it is missing, while the result lives. Throws Error{kCheckpoint} with the
// owner if another run saves there, Error{kDisk}. Blocks for CLAIM.wait_max at most.
[[nodiscard]] std::unique_ptr<FileLock> claim_checkpoints(FileTree& tree, const std::string& root,
                                                          const CheckpointClaim& claim = {});

// Refuses an OUTPUT that a run would spoil, with Error{kCheckpoint}: one with complete checkpoints,
// one with files that the result would replace (weights, an adapter, config.json, a tokenizer, a
// run.json that is not dslaunch's), and a folder inside a run. RESUMES allows checkpoints and
// leftovers of their run; a folder that only holds runs is refused with their names.
void require_unused_output(FileTree& tree, const std::string& output, bool resumes = false);

class CheckpointStore {
  public:
    // KEEP is the number of complete ones that stay; 0: all. Nothing is made before begin(), which
    // takes ROOT unless CLAIM is given. TREE must outlive it.
    CheckpointStore(FileTree& tree, std::string root, int64_t keep,
                    std::unique_ptr<FileLock> claim = nullptr);

    // Makes the folder that the files of a save are written to, and removes what saves of crashed
    // runs have left. NEED is the bytes of all ranks' files; throws Error{kDisk} if they do not
    // fit. ID is this save's, [0-9a-z-].
    [[nodiscard]] std::string begin(int64_t step, const std::string& id, Bytes need);
    // Makes a checkpoint of all files, which are durable, lets `latest` name it, and removes what
    // retention lets go. Later steps, which another run has left there, become
    // ROOT/abandoned-ID-step-M. Returns its folder, ROOT/step-N. A checkpoint of the same step is
    // replaced. Throws Error{kDisk}; the save then counts only if it is listed as complete.
    std::string commit(const Checkpoint& checkpoint);
    // Removes a failed save's folder. Parts that cannot be removed stay for the next begin().
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

// Returns the checkpoints of a list, in any order, that retention lets go: all complete finite ones
// but the newest KEEP, never the newest verified, never the newest finite one; incomplete and
// non-finite ones only if there is a newer complete finite one. KEEP 0: nothing. Pure.
[[nodiscard]] std::vector<std::string> checkpoints_to_remove(
    const std::vector<StoredCheckpoint>& all, int64_t keep);

}  // namespace dslaunch::storage
