// The files that a rank of a job reads and writes beside its data: the checkpoint that training
// resumes from, the checkpoints that it saves, and the trained weights. Data path: job setup,
// communication -> [here] -> lib/runtime/save. Threads: the one that trains.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "job/setup/job_setup.h"
#include "job/setup/rank_comms.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/save/checkpointer.h"
#include "runtime/save/saved_state.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/file_tree.h"

namespace dslaunch::job {

struct SavingOptions {
    std::string output;      // folder of the run; empty: nothing is saved
    std::string resume;      // see ResumeRequest::from
    bool restarted = false;  // see ResumeRequest::restarted
    std::string model_path;  // that adapters are said to belong to
    std::string owner;       // of the folder's checkpoints, for messages: job, attempt, host
    bool new_data = false;   // goes on with other data than the checkpoint's
    // After a restart a rank of the attempt before may still save, until its agent ends it.
    std::chrono::milliseconds claim_wait_max{0};
};

class JobSaving {
  public:
    // SETUP and COMMS must outlive this. REQUIRES: COMMS is open.
    JobSaving(JobSetup& setup, RankComms& comms, SavingOptions options);

    // Called by all ranks: takes the folder that checkpoints go to and checks it, and opens the
    // checkpoint that training resumes from, whose untrained parameters are put into the model.
    // Throws what storage::claim_checkpoints(), require_unused_output(), require_shared_folder()
    // and find_resume() do, and Error{kCheckpoint} if the run would go on with other data than the
    // checkpoint's.
    void resume();
    // Returns the state that training resumes from, until begin(); null: training starts over.
    [[nodiscard]] runtime::SavedState* saved() { return saved_ ? &*saved_ : nullptr; }
    // Returns the progress of the resumed run, until begin(); by default none.
    [[nodiscard]] storage::TrainingState training() const;

    // Frees the saved state, which STATE has taken, and lets STATE be saved from now on.
    // OWN_BUFFERS: each rank's buffers differ. STATE and BUFFERS must outlive the training.
    void begin(runtime::SavableState& state, runtime::ModelBuffers& buffers, bool own_buffers);
    // Returns null if nothing is saved.
    [[nodiscard]] runtime::Checkpointer* checkpointer() {
        return checkpointer_ ? &*checkpointer_ : nullptr;
    }

    // Called by all ranks after the last step: the first rank gets and writes the trained weights.
    // Returns false if none are written.
    [[nodiscard]] bool write_weights(runtime::SavableState& state, runtime::ModelBuffers& buffers);

  private:
    [[nodiscard]] bool saves() const { return !options_.output.empty(); }
    [[nodiscard]] bool via_first() const;
    // Returns the folder where this rank's host has its files of a save.
    [[nodiscard]] std::string own_root() const;
    void claim();
    [[nodiscard]] const runtime::Topology& place() const { return comms_.job().topology(); }
    void require_same_adapters() const;
    void require_same_base() const;
    void require_same_numbers() const;
    void require_same_data();
    void require_choice() const;
    void describe_resume() const;
    void open_checkpointer(runtime::SavableState& state, runtime::ModelBuffers& buffers,
                           bool own_buffers);
    [[nodiscard]] storage::Checkpoint about() const;
    [[nodiscard]] std::vector<char> moved_buffers() const;
    void bring_buffers(runtime::ModelBuffers& buffers);

    JobSetup& setup_;
    RankComms& comms_;
    SavingOptions options_;
    std::unique_ptr<storage::FileTree> files_;
    std::unique_ptr<storage::FileLock> claim_;  // of rank 0, from resume() to begin()
    std::unique_ptr<storage::CheckpointReader> reader_;
    std::optional<runtime::SavedState> saved_;
    std::string base_;          // graph::base_fingerprint(), empty without adapters
    storage::DataMark data_;    // of rank 0
    bool begins_data_ = false;  // the data are others than the checkpoint's
    std::optional<runtime::Checkpointer> checkpointer_;
};

}  // namespace dslaunch::job
