// The choice of the checkpoint that a job resumes from, by rank 0; all ranks read it through
// together. Data path: --resume -> checkpoint reader -> saved state.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/collectives.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::job {

struct ResumeRequest {
    // "": start over; "auto": the newest whole checkpoint below OUTPUT, if there is any; else a
    // folder that must have one.
    std::string from;
    std::string output;      // folder of the run
    bool restarted = false;  // true: the job ran before under this launcher, its own checkpoints go
                             // first
    bool via_first = false;  // true: hosts share no file system, rank 0's checkpoint is sent to the
                             // others
};

// Returns the folder where node rank NODE_RANK, above 0, keeps its files of a save until rank 0 has
// them: beside the checkpoints, since the host may see rank 0's disk after all.
[[nodiscard]] std::string checkpoints_of_host(const std::string& output, int node_rank);

// Returns the folder there for a copy of rank 0's checkpoint.
[[nodiscard]] std::string resume_copy(const std::string& output, int node_rank);

// Called by all ranks. Returns null if training starts over, which rank 0 logs if a checkpoint was
// looked for. The ranks share out the files, read every byte and compare it with its checksums. The
// search for the newest passes over a damaged checkpoint with a warning. Throws Error{kCheckpoint}
// for a named folder with nothing usable, for damage in the named checkpoint, with what to use
// instead, or for a run below OUTPUT that did steps and saved nothing.
[[nodiscard]] std::unique_ptr<storage::CheckpointReader> find_resume(
    storage::FileTree& tree, runtime::Collectives& collectives, const ResumeRequest& request);

// Called by all ranks before anything is saved: with several hosts, checks that all see the files
// that rank 0 writes below OUTPUT. Throws Error{kSetup} naming the first rank and host that does
// not.
void require_shared_folder(storage::FileTree& tree, runtime::Collectives& collectives,
                           const std::string& output);

}  // namespace dslaunch::job
