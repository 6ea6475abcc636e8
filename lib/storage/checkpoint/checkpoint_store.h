// The checkpoints of a run: step-N folders below one root, how one comes to be, and which may go.
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

// A committed folder as its manifest and the sizes of its files say.
struct StoredCheckpoint {
    std::string folder;
    int64_t step = 0;
    Bytes bytes;
    bool complete = false;  // manifest and files are there, sizes are right
    bool finite = false;
    bool verified = false;  // somebody has read all of it and found it whole
    std::string fault;      // why it is not complete
};

// The checkpoint in FOLDER, whatever the folder is called: one that was set aside, a copy. Where
// the manifest cannot be read, its step is -1.
[[nodiscard]] StoredCheckpoint checkpoint_in(const FileTree& tree, const std::string& folder);

// A wish to be the only one who saves below a root of checkpoints.
struct CheckpointClaim {
    std::string owner = "another run";      // a line for people, as `job a, attempt 0, on host h`
    std::chrono::milliseconds wait_max{0};  // for who holds it now, as a run that was cut off
    // Hears once who is waited for.
    std::function<void(const std::string& line)> told = {};
};

// Takes ROOT, made where it is missing, for as long as the result lives. Throws Error{kCheckpoint}
// with the owner while another run saves there, Error{kDisk}. Blocks for CLAIM.wait_max at most.
[[nodiscard]] std::unique_ptr<FileLock> claim_checkpoints(FileTree& tree, const std::string& root,
                                                          const CheckpointClaim& claim = {});

// Refuses an OUTPUT that a run would spoil, with Error{kCheckpoint}: one with complete checkpoints,
// one with files that the result would replace (weights, an adapter, config.json, a tokenizer, a
// run.json that is not dslaunch's), and a folder inside a run. RESUMES: checkpoints and what their
// run has left are welcome; a folder that only holds runs is refused with their names.
void require_unused_output(FileTree& tree, const std::string& output, bool resumes = false);

class CheckpointStore {
  public:
    // KEEP: complete ones that stay, 0: all. Nothing is made before begin(), which takes ROOT
    // unless CLAIM is given. TREE must outlive it.
    CheckpointStore(FileTree& tree, std::string root, int64_t keep,
                    std::unique_ptr<FileLock> claim = nullptr);

    // Makes the folder that the files of a save are written to, and removes what saves of crashed
    // runs have left. NEED: bytes of all ranks' files; Error{kDisk} when they do not fit.
    // ID: of this save, [0-9a-z-].
    [[nodiscard]] std::string begin(int64_t step, const std::string& id, Bytes need);
    // All files are durable: makes them a checkpoint, lets `latest` name it, and removes what
    // retention lets go. Later steps, which another run has left there, become
    // ROOT/abandoned-ID-step-M. Returns its folder, ROOT/step-N. A checkpoint of the same step is
    // replaced. Throws Error{kDisk}; the save then counts only if it is listed as complete.
    std::string commit(const Checkpoint& checkpoint);
    // Removes the folder of a save that failed; what cannot be removed stays for the next begin().
    void abandon(int64_t step, const std::string& id) noexcept;

    // Newest first.
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

// The checkpoints that retention lets go, of any list in any order: all complete finite ones but
// the newest KEEP, never the newest that is verified, never the newest finite one; incomplete and
// non-finite ones only when a newer complete finite one is there. KEEP 0: nothing. Pure.
[[nodiscard]] std::vector<std::string> checkpoints_to_remove(
    const std::vector<StoredCheckpoint>& all, int64_t keep);

}  // namespace dslaunch::storage
