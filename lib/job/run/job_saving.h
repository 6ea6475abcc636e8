// The files that a rank of a job reads and writes in addition to its data: the checkpoint that
// training resumes from, the checkpoints that it saves, and the trained weights. Data path: job
// setup, communication -> [here] -> lib/runtime/save. Thread: the training thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/setup/job_setup.h"
#include "job/setup/rank_comms.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/save/checkpointer.h"
#include "runtime/save/final_weights.h"
#include "runtime/save/saved_state.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/file_tree.h"

namespace dslaunch::job {

// The folder of a run and the rules for its checkpoints, from the command line.
struct SavingOptions {
    std::string output;      // folder of the run; empty: nothing is saved
    std::string resume;      // see ResumeRequest::from
    bool restarted = false;  // see ResumeRequest::restarted
    // The path of the model. Saved adapters name it; a run without adapters copies files from the
    // model's folder.
    std::string model_path;
    std::string owner;      // owner of the folder, for messages: job, attempt, host
    std::string launch;     // see Checkpoint::launch
    bool new_data = false;  // true: the data may differ from the checkpoint's
    bool is_fed = false;    // true: data come from the caller, so no checkpoint identifies them
    // The longest wait for the claim on the folder. After a restart, a rank of the previous attempt
    // may still be saving until its agent ends it.
    std::chrono::milliseconds claim_wait_max{0};
};

// The weights that a run has written.
struct WrittenWeights {
    bool any = false;  // false: the job writes none
    int64_t step = 0;  // on rank 0: the step of the weights, which is the best step or the last
};

// The end of a training.
struct TrainedUntil {
    int64_t step = 0;
    int64_t updates = 0;  // of these, steps that changed the model
};

// Resumes a run, saves its checkpoints and writes its trained weights. Every rank has one, and
// calls resume(), begin(), begin_steps() and write_weights() in this order.
class JobSaving {
  public:
    // SETUP and COMMS must outlive this object. REQUIRES: COMMS is open.
    JobSaving(JobSetup& setup, RankComms& comms, SavingOptions options);

    // Called by all ranks. Claims and checks the folder for checkpoints. Opens the checkpoint that
    // training resumes from, and puts its untrained parameters into the model. Throws what
    // storage::claim_checkpoints(), require_unused_output(), require_shared_folder() and
    // find_resume() throw, and Error{kCheckpoint} if the run would continue with data that differ
    // from the checkpoint's.
    void resume();
    // Returns the state that training resumes from; null if training starts over. Valid until
    // begin().
    [[nodiscard]] runtime::SavedState* saved() { return saved_ ? &*saved_ : nullptr; }
    // Returns the progress of the run that is resumed, or no progress if training starts over.
    // Valid until begin().
    [[nodiscard]] storage::TrainingState training() const;

    // Frees the saved state, because STATE has been made from it. From now on, checkpoints save
    // STATE. OWN_BUFFERS is true if the buffers of each rank differ. STATE and BUFFERS must outlive
    // the training.
    void begin(runtime::SavableState& state, runtime::ModelBuffers& buffers, bool own_buffers);
    // Called by all ranks right before the first step or save. Waits for all ranks, so that no file
    // of an earlier run changes if any rank has refused the run. Then, if training goes back to an
    // earlier checkpoint in the folder of the run, rank 0 sets the later checkpoints aside. Throws
    // Error{kDisk}.
    void begin_steps();
    // Returns null if the job does not save.
    [[nodiscard]] runtime::Checkpointer* checkpointer() {
        return checkpointer_ ? &*checkpointer_ : nullptr;
    }

    // Called by all ranks once all saves have ended. END is the last step. If the config asks for
    // the best checkpoint and there is one, the first rank writes its weights. Otherwise the first
    // rank collects the trained weights and writes them. Throws Error{kDisk}, and
    // Error{kCheckpoint} if the best checkpoint is damaged.
    [[nodiscard]] WrittenWeights write_weights(runtime::SavableState& state,
                                               runtime::ModelBuffers& buffers,
                                               const TrainedUntil& end);

  private:
    [[nodiscard]] bool saves() const { return !options_.output.empty(); }
    [[nodiscard]] bool via_first() const;
    // Returns the folder in which this rank's host stores its files of a save.
    [[nodiscard]] std::string own_root() const;
    void claim();
    [[nodiscard]] const runtime::Topology& place() const { return comms_.job().topology(); }
    void require_same_adapters() const;
    void require_same_base() const;
    void require_same_masks() const;
    void require_same_numbers() const;
    void require_same_data();
    [[nodiscard]] std::string data_names() const;
    void require_choice() const;
    void describe_resume() const;
    [[nodiscard]] bool sets_aside() const;
    [[nodiscard]] runtime::CompressionEnd compression_end(int64_t updates) const;
    [[nodiscard]] double loss_of_whole(const std::vector<c10::IValue>& batch) const;
    [[nodiscard]] std::string best_before(int64_t last_step) const;
    [[nodiscard]] int64_t write_checkpoint_weights(const runtime::FinalWeights& weights,
                                                   const std::string& folder) const;
    void open_checkpointer(runtime::SavableState& state, runtime::ModelBuffers& buffers,
                           bool own_buffers);
    [[nodiscard]] storage::Checkpoint about() const;
    [[nodiscard]] std::vector<char> moved_buffers() const;
    void bring_buffers(runtime::ModelBuffers& buffers);

    JobSetup& setup_;
    RankComms& comms_;
    SavingOptions options_;
    std::unique_ptr<storage::FileTree> files_;
    std::unique_ptr<storage::FileLock> claim_;  // on rank 0, from resume() to begin()
    std::unique_ptr<storage::CheckpointReader> reader_;
    std::optional<runtime::SavedState> saved_;
    std::string base_;          // graph::base_fingerprint(), empty without adapters
    std::string masks_;         // graph::fingerprint_of_masks()
    storage::DataMark data_;    // on rank 0
    bool begins_data_ = false;  // true: the data are not the checkpoint's
    // Only on rank 0: checkpoints of later steps than this one are to be set aside. If it is not
    // set, no checkpoints are set aside.
    std::optional<int64_t> aside_after_;
    std::optional<runtime::Checkpointer> checkpointer_;
};

}  // namespace dslaunch::job
