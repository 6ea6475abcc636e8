// What a rank needs to make and to report on its parameters, gradients and optimizer states: which
// part of them is its own, the places in the arena, the disk. Data path: job setup -> [here]
// -> lib/zero. One thread.
#pragma once

#include <memory>
#include <optional>

#include "job/predict/adaptive_placement.h"
#include "job/setup/job_setup.h"
#include "job/setup/rank_comms.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/device_backend.h"
#include "runtime/train/trainer.h"
#include "zero/zero_state.h"

namespace dslaunch::job {

class JobState {
  public:
    // Takes the room on disk, where the plan puts anything there, before anything large is taken.
    // BACKEND: null on the CPU. All must outlive this. Throws Error{kDisk}.
    JobState(const JobSetup& setup, const launch::WorkerEnvironment& environment,
             runtime::DeviceBackend* backend);

    // Adds what the state needs to the arena of the ranks that train the same parameters.
    void add_slices(runtime::ArenaLayout& arena);

    // SAVED: what training resumes from, or null: as the model is loaded; needed until this is
    // back. THREADS: of this rank. This must outlive the state. Blocks until all ranks that train
    // the same parameters have come.
    [[nodiscard]] std::unique_ptr<runtime::ParameterState> make(RankComms& comms,
                                                                runtime::SavedState* saved,
                                                                int threads);
    // Logs what is offloaded, and how.
    void describe_offload() const;

    // By all ranks, where anything is offloaded: logs as the first what went to the disks of its
    // host since BEFORE, all its ranks together, and what it does to them. PLACEMENT: null where it
    // was fixed.
    void report_offload(runtime::Collectives& job, const runtime::StateAccount& state,
                        const AdaptivePlacement* placement, const runtime::DiskTraffic& before,
                        const runtime::TrainResult& result) const;

  private:
    [[nodiscard]] zero::ZeroPlace zero_place() const;

    const JobSetup& setup_;
    runtime::DeviceBackend* backend_;
    zero::ShardMap shards_;
    std::optional<zero::OffloadFile> offload_;
    zero::ZeroSlices slices_;
};

}  // namespace dslaunch::job
