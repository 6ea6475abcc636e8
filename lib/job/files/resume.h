// The choice of the checkpoint that a job resumes from. Rank 0 makes it; all ranks together read
// and verify the checkpoint. Data path: --resume -> checkpoint reader -> saved state.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/collectives.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::job {

// The checkpoint to look for, as the command line and the launcher request it.
struct ResumeRequest {
    // "": start over; "auto": the newest undamaged checkpoint below OUTPUT, if there is one;
    // otherwise a folder that must contain a checkpoint.
    std::string from;
    std::string output;      // folder of the run
    bool restarted = false;  // true: this launcher restarted the job, and the checkpoints that it
                             // has saved come first
    std::string launch;      // Checkpoint::launch of the job's own checkpoints; empty: all in
                             // OUTPUT are its own
    bool via_first = false;  // true: hosts share no file system; rank 0's checkpoint is sent to the
                             // other hosts
};

// Returns the folder for the files of another host than rank 0's. The host with node rank NODE_RANK
// (above 0) stores its files of a save there, until rank 0 has received them. The folder is not the
// folder of the checkpoints but beside it, because the host may use the same disk as rank 0.
[[nodiscard]] std::string checkpoints_of_host(const std::string& output, int node_rank);

// Returns the folder, inside checkpoints_of_host(), for a copy of rank 0's checkpoint.
[[nodiscard]] std::string resume_copy(const std::string& output, int node_rank);

// Called by all ranks. Returns null if training starts over; rank 0 logs this if a checkpoint was
// looked for. The ranks divide the files among them, read every byte and compare it with the
// checksums. The search for the newest checkpoint skips damaged checkpoints with a warning. Throws
// Error{kCheckpoint} if a named folder has nothing usable, if the named checkpoint is damaged (the
// message says which checkpoint to use instead), or if a run below OUTPUT did steps and saved
// nothing.
[[nodiscard]] std::unique_ptr<storage::CheckpointReader> find_resume(
    storage::FileTree& tree, runtime::Collectives& collectives, const ResumeRequest& request);

// Called by all ranks before anything is saved. If there are several hosts, checks that all of them
// see the files that rank 0 writes below OUTPUT. Throws Error{kSetup}, naming the first rank and
// host that do not see them.
void require_shared_folder(storage::FileTree& tree, runtime::Collectives& collectives,
                           const std::string& output);

}  // namespace dslaunch::job
