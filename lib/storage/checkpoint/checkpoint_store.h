// The checkpoints of a run: step-N folders below one root. Decides how a checkpoint is made, and
// which checkpoints are removed. begin() -> every rank writes its files into the folder ->
// commit(). Only rank 0 uses it; one thread at a time, one save at a time. A crash at any moment
// leaves every committed checkpoint as it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
    bool is_verified = false;  // all files were read and all hashes matched
    std::string fault;         // the reason if is_complete is false
    std::string launch = {};   // see Checkpoint::launch
    // The run's record of evaluations, if one was made right after this step.
    std::optional<EvalRecord> evaluated = {};
    std::string judged_by = {};  // metric and held-out data; only values with equal texts compare
    bool is_best = false;        // see mark_best()
};

// Returns the checkpoint in FOLDER, whatever the folder's name is: it may have been set aside or
// copied. The step is -1 if the manifest cannot be read.
[[nodiscard]] StoredCheckpoint checkpoint_in(const FileTree& tree, const std::string& folder);

// A request to be the only run that saves checkpoints below a root.
struct CheckpointClaim {
    std::string owner = "another run";      // for people: `job a, attempt 0, on host h`
    std::chrono::milliseconds wait_max{0};  // longest wait for the current owner to end
    // Called once if there is a wait, with a line that names the current owner.
    std::function<void(const std::string& line)> told = {};
};

// Locks the folder ROOT until the returned lock is destroyed; creates the folder if it is missing.
// Throws Error{kCheckpoint}, naming the owner, if another run saves there, and Error{kDisk} if the
// disk fails. Blocks for at most CLAIM.wait_max.
[[nodiscard]] std::unique_ptr<FileLock> claim_checkpoints(FileTree& tree, const std::string& root,
                                                          const CheckpointClaim& claim = {});

// Throws Error{kCheckpoint} if a run would spoil the folder OUTPUT. OUTPUT must not be inside a
// run, must not have complete checkpoints, and must not have files that the result would replace:
// weights, an adapter, a run.json that dslaunch did not write, or a file named in COPIED (from
// config_files_of_result()). If RESUMES, OUTPUT may have checkpoints, and then any files of the run
// that made them. If RESUMES and OUTPUT has no checkpoints, its subfolders must not be runs; the
// error names such runs.
void require_unused_output(FileTree& tree, const std::string& output, bool resumes = false,
                           std::span<const std::string> copied = {});

// The rule that decides which checkpoints of a run stay.
struct Retention {
    // Keeps the NEWEST_COUNT newest complete checkpoints (all if 0), and the best one if BEST.
    Retention(int64_t newest_count = 0, bool best = false)  // NOLINT(google-explicit-constructor)
        : newest(newest_count), keeps_best(best) {}

    int64_t newest;   // how many of the newest complete checkpoints stay; all if 0
    bool keeps_best;  // the best checkpoint also stays, and the file `best` names it
};

// Makes, lists and removes the checkpoints below one root.
class CheckpointStore {
  public:
    // KEEPS says which checkpoints stay. Creates nothing before begin(), which locks ROOT unless
    // CLAIM is given. TREE must outlive the store.
    CheckpointStore(FileTree& tree, std::string root, Retention keeps,
                    std::unique_ptr<FileLock> claim = nullptr);

    // Makes the folder for the files of a save, and returns it. Removes what the saves of crashed
    // runs have left. NEED is the total size of all ranks' files. Throws Error{kDisk} if they do
    // not fit. ID is the name of this save, [0-9a-z-].
    [[nodiscard]] std::string begin(int64_t step, const std::string& id, Bytes need);
    // Makes a checkpoint from the files of all ranks, which must be durable. Makes `latest` name
    // it, and removes the checkpoints that are no longer kept. Renames later steps, which another
    // run has left there, to ROOT/abandoned-ID-step-M. Replaces a checkpoint of the same step.
    // Returns the new folder, ROOT/step-N. Throws Error{kDisk}; the save then counts only if list()
    // reports it as complete.
    std::string commit(const Checkpoint& checkpoint);
    // Removes the folder of a failed save. Parts that cannot be removed stay until the next
    // begin().
    void abandon(int64_t step, const std::string& id) noexcept;

    // Returns the checkpoints, newest first; at most one of them is the best.
    [[nodiscard]] std::vector<StoredCheckpoint> list() const;
    // Renames the checkpoints of steps after STEP to ROOT/abandoned-ID-step-M, since they belong to
    // a run that the current run does not continue. ID is as for begin().
    void set_aside_later(int64_t step, const std::string& id);

  private:
    void remove_leftovers();
    void put_in_place(const std::string& from, const std::string& to, const std::string& id);
    void point(const std::string& name, int64_t step, const std::string& id);
    void point_best(const std::vector<StoredCheckpoint>& all, const std::string& id);
    void remove_old(const std::vector<StoredCheckpoint>& all, const std::string& newest);
    void tidy_up(const std::string& newest, const std::string& id) noexcept;

    FileTree& tree_;
    std::string root_;
    Retention keeps_;
    std::unique_ptr<FileLock> claim_;
};

// Returns the checkpoints in ALL that are to be removed; ALL may be in any order. A complete finite
// checkpoint stays if it is one of the KEEPS.newest newest ones, the newest verified one, the
// newest finite one, or the best one if KEEPS.keeps_best. Other complete finite checkpoints are
// removed. A checkpoint that is not complete or not finite is removed only if a newer checkpoint is
// complete and finite. If KEEPS.newest is 0, nothing is removed. Pure.
[[nodiscard]] std::vector<std::string> checkpoints_to_remove(
    const std::vector<StoredCheckpoint>& all, const Retention& keeps);

// Marks the best checkpoint in ALL, which may be in any order. It is the complete and finite
// checkpoint that had the best evaluation right after its step; the earliest one, if several are
// equally good. Values count only if they come from the same metric and held-out data as the newest
// checkpoint's value. Marks no checkpoint if no value counts. Pure.
void mark_best(std::vector<StoredCheckpoint>& all);

}  // namespace dslaunch::storage
