// Which checkpoint a job resumes from: chosen by rank 0, read through by all ranks together. Where
// it stands: --resume -> checkpoint reader -> saved state.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/collectives.h"
#include "storage/checkpoint/checkpoint_reader.h"

namespace dslaunch::job {

struct ResumeRequest {
    // "": start anew; "auto": the newest whole one below OUTPUT, if there is any; else a folder:
    // there must be one.
    std::string from;
    std::string output;      // of the run
    bool restarted = false;  // the job has run before under this launcher: its own go first
    bool via_first = false;  // hosts share no file system: what rank 0 has comes to the others
};

// Where a checkpoint of rank 0's is copied to on hosts that do not see it.
[[nodiscard]] std::string resume_copy(const std::string& output);

// By all ranks; null: training starts anew, which rank 0 tells where one was looked for. Every byte
// is read and compared with its checksums, shared out among the ranks. A damaged one is passed over
// with a warning when the newest is looked for. Throws Error{kCheckpoint}: nothing usable in a
// folder that was named, or damage in the checkpoint that was named, with what to use instead.
[[nodiscard]] std::unique_ptr<storage::CheckpointReader> find_resume(
    storage::FileTree& tree, runtime::Collectives& collectives, const ResumeRequest& request);

// By all ranks of a job on several hosts, before anything is saved: whether all see the files that
// rank 0 writes below OUTPUT. Throws Error{kSetup} naming the first rank and host that does not.
void require_shared_folder(storage::FileTree& tree, runtime::Collectives& collectives,
                           const std::string& output);

}  // namespace dslaunch::job
