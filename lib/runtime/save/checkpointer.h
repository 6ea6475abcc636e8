// The checkpointer saves the training state of all ranks while training goes on. begin() at the end
// of a step takes a snapshot of the state, and a thread on each rank writes the rank's part. At the
// end of a later step, when all parts are durable, rank 0 commits. Data path: trainer ->
// checkpointer -> shard writers, checkpoint store. Threads: all ranks make the same calls of begin,
// advance and finish, between steps, in the compute lane's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/machine/small_thread.h"
#include "graph/archive/model.h"
#include "runtime/comm/collectives.h"
#include "runtime/save/snapshot.h"
#include "runtime/state/savable_state.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/shard_writer.h"

namespace dslaunch::runtime {

// The phase of a rank's part of a save. The ranks exchange it at the end of every step.
enum class SavePhase : uint8_t { kIdle, kWriting, kWritten, kCommitting, kCommitted, kFailed };
// Returns true if PHASE, which another rank sent, is one of the phases.
[[nodiscard]] constexpr bool is_known(SavePhase phase) {
    return phase <= SavePhase::kFailed;
}

// The objects and settings of a checkpointer. Pointers must outlive it.
struct CheckpointerParts {
    storage::FileTree* tree = nullptr;
    std::string root;                                    // folder of the step folders
    std::unique_ptr<storage::FileLock> claim = nullptr;  // rank 0's lock; if null, begin() locks
    storage::Retention keeps = {};                       // the checkpoints that stay
    bool goes_on = false;  // true if a failed save does not end the run
    // True if hosts share no disk: then all files are collected on rank 0's disk. ROOT must be a
    // different path on each host, because some hosts may share a file system after all.
    bool via_first = false;
    const graph::Model* model = nullptr;
    // True if parameters that are not trained are left out, for example with adapters: a resumed
    // run reads them from its model again.
    bool leaves_out_frozen = false;
    SavableState* state = nullptr;
    Collectives* collectives = nullptr;
    // The number of data-parallel ranks that have buffers of their own and save them. 1 means that
    // the first rank's buffers are used by all.
    int replicas = 1;
    int replica = 0;  // this rank's replica
    // In a pipeline, one flag per buffer: true if this rank reads the buffer and saves it for its
    // replica. If it is empty, the rank saves all buffers.
    std::vector<char> saves_buffer = {};
    // One flag per buffer: true if forward may change it. A buffer that is not part of the
    // state_dict is saved only if its flag is true. If it is empty, all flags are true.
    std::vector<char> moves_buffer = {};
    // of_stage is true in a pipeline, where STATE has only a stage's parameters. first_of_stage is
    // true on the stage's first rank, which describes these parameters to the other ranks.
    bool of_stage = false;
    bool first_of_stage = false;
    // Called on all ranks before the model is read. May be empty.
    std::function<void()> before_save;
    // The checkpoint's contents except training, id, tensors and files.
    storage::Checkpoint about;
    std::function<void(const std::string& line)> told;  // called by rank 0 for each save
};

// Saves; see the top of this file.
class Checkpointer {
  public:
    // The objects that PARTS points to must outlive the checkpointer.
    explicit Checkpointer(CheckpointerParts parts);
    // Joins the thread. A save that is under way remains unfinished, as after a crash.
    ~Checkpointer();

    // Checks that the checkpoint format can describe everything that will be saved. All ranks call
    // it, before training. Throws Error{kInput}, naming the tensor.
    void require_savable() const;
    // Starts to save the present state. Finishes a save under way first. Throws Error{kCheckpoint}
    // if a save fails, unless training continues after a failed save (goes_on).
    void begin(const storage::TrainingState& training);
    // Returns this rank's phase. Any thread.
    [[nodiscard]] SavePhase phase() const { return phase_; }
    // Continues a save, at the end of a step. RANKS has the phase of each rank. Throws as begin()
    // does.
    void advance(std::span<const SavePhase> ranks);
    // Waits until no save is under way. Throws as begin() does.
    void finish();
    // Notes STEP, the step of the checkpoint from which this run has resumed.
    void set_saved_step(int64_t step) { saved_step_ = step; }
    // Returns the time of the longest save, from begin() to commit.
    [[nodiscard]] Duration longest() const { return longest_; }

  private:
    // A tensor that no update changes, or a copy of a buffer.
    struct Whole {
        storage::CheckpointPiece piece;
        at::Tensor values;  // values in the order of the tensor's memory
        int parameter = -1;
    };
    struct Save;
    [[nodiscard]] std::unique_ptr<Save> plan_save(const storage::TrainingState& training);
    [[nodiscard]] std::vector<std::optional<int64_t>> updates() const;
    void add_tensors(storage::Checkpoint& checkpoint) const;
    void add_buffer(storage::Checkpoint& checkpoint, int buffer, int replica) const;
    void add_views(storage::CheckpointTensor& tensor, const at::Tensor& owner) const;
    void add_untrained(Save& save) const;
    [[nodiscard]] bool saves_buffer(size_t buffer, int replica) const;
    [[nodiscard]] bool open_folder(Save& save);
    [[nodiscard]] bool open_own_folder(Save& save, Bytes own);
    void open_writers(Save& save) const;
    void write_disk_units(Save& save);
    void write_part(Save& save);
    void commit();
    void fail_together();
    void run_in_thread(std::function<void()> work);
    [[nodiscard]] bool has_lost_root() const;
    void give_up(const std::string& why);
    // Returns the checkpoint's piece for a piece of a parameter of the model.
    [[nodiscard]] storage::CheckpointPiece piece_of(const SavedPiece& piece) const {
        return {tensor_of_[piece.parameter], piece.state, piece.elements};
    }
    [[nodiscard]] bool first() const { return parts_.collectives->topology().rank() == 0; }

    CheckpointerParts parts_;
    storage::CheckpointStore store_;
    std::vector<int> saved_;      // the parameters of the model that are saved
    std::vector<int> tensor_of_;  // by parameter: its index in saved_; -1 if it is left out
    std::vector<int> saved_buffers_;
    std::unique_ptr<Save> save_;
    std::atomic<SavePhase> phase_{SavePhase::kIdle};
    std::string failure_;      // why this rank's part failed, if phase_ is kFailed
    int64_t saved_step_ = -1;  // step of the newest checkpoint; -1: none
    Duration longest_{0};
    SmallThread thread_;
};

}  // namespace dslaunch::runtime
