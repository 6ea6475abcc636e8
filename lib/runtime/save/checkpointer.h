// Saves the training of all ranks while it goes on: begin() at the end of a step takes hold of the
// state, a thread of each rank writes its part, and at a later step's end, when all parts are
// durable, rank 0 commits. Where it stands: trainer -> checkpointer -> shard writers, checkpoint
// store. All ranks call begin, advance and finish alike, between steps, in the compute lane's
// thread.
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
#include "base/small_thread.h"
#include "graph/archive/model.h"
#include "runtime/comm/collectives.h"
#include "runtime/save/snapshot.h"
#include "runtime/state/savable_state.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/shard_writer.h"

namespace dslaunch::runtime {

// Where a rank stands with its part of a save; the ranks tell each other at every step's end.
enum class SavePhase : uint8_t { kIdle, kWriting, kWritten, kCommitting, kCommitted, kFailed };

struct CheckpointerParts {
    storage::FileTree* tree = nullptr;
    std::string root;        // of step folders
    int64_t keep = 0;        // as CheckpointStore
    bool goes_on = false;    // after a save that failed; else it ends the run
    bool via_first = false;  // hosts share no file system: rank 0's disk gets all files
    const graph::Model* model = nullptr;
    SavableState* state = nullptr;
    Collectives* collectives = nullptr;
    // Data-parallel ranks whose buffers differ each save their own; 1: the first rank's are all.
    int replicas = 1;
    int replica = 0;  // this rank's
    // In a pipeline, by buffer: whether this rank saves its replica's, as one that reads it. Empty:
    // all of them.
    std::vector<char> saves_buffer = {};
    // In a pipeline STATE has the parameters of a stage; its first rank tells the others of them.
    bool of_stage = false;
    bool first_of_stage = false;
    std::function<void()> before_save;  // by all ranks, before the model is looked at; may be empty
    // Of what is written: all but training, id, tensors and files.
    storage::Checkpoint about;
    std::function<void(const std::string& line)> told;  // as rank 0, of each save
};

class Checkpointer {
  public:
    // What PARTS points to must outlive it. As rank 0 throws Error{kCheckpoint} while another run
    // saves there.
    explicit Checkpointer(CheckpointerParts parts);
    // Joins the thread. Leaves a save under way as a crash does.
    ~Checkpointer();

    // Starts to save the state as it is. A save under way is finished first. Throws
    // Error{kCheckpoint} unless a failed save is gone on after.
    void begin(const storage::TrainingState& training);
    // This rank's, any thread.
    [[nodiscard]] SavePhase phase() const { return phase_; }
    // At a step's end, with the phases of all ranks by rank: the next move of a save. Throws as
    // begin() does.
    void advance(std::span<const SavePhase> ranks);
    // Waits until nothing is under way. Throws as begin() does.
    void finish();
    // Step of the newest checkpoint that this run has committed or resumed from, -1: none. Known to
    // all ranks after finish().
    [[nodiscard]] int64_t saved_step() const { return saved_step_; }
    void set_saved_step(int64_t step) { saved_step_ = step; }
    // From begin() to commit, of the save that took longest.
    [[nodiscard]] Duration longest() const { return longest_; }

  private:
    // A tensor that no update changes, or a copy of a buffer.
    struct Whole {
        storage::CheckpointPiece piece;
        at::Tensor values;  // in the order of its memory
        int parameter = -1;
    };
    struct Save;
    [[nodiscard]] std::unique_ptr<Save> plan_save(const storage::TrainingState& training);
    [[nodiscard]] std::vector<std::optional<int64_t>> updates() const;
    void add_tensors(Save& save) const;
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
    void give_up(const std::string& why);
    [[nodiscard]] bool first() const { return parts_.collectives->topology().rank() == 0; }

    CheckpointerParts parts_;
    storage::CheckpointStore store_;
    std::unique_ptr<Save> save_;
    std::atomic<SavePhase> phase_{SavePhase::kIdle};
    std::string failure_;  // of this rank's part, when phase_ is kFailed
    int64_t saved_step_ = -1;
    Duration longest_{0};
    SmallThread thread_;
};

}  // namespace dslaunch::runtime
