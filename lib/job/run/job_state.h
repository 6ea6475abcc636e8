// The parts from which a rank makes its parameters, gradients and optimizer states, and reports on
// them: its own part of them, the places in the arena, the disk. Data path: job setup -> [here]
// -> lib/zero. One thread.
#pragma once

#include <memory>
#include <optional>

#include "device/host_device.h"
#include "job/setup/job_setup.h"
#include "job/setup/rank_comms.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/compute/rank_device.h"
#include "runtime/train/trainer.h"
#include "zero/zero_state.h"

namespace dslaunch::job {

class JobState {
  public:
    // Takes the room on disk, if the plan needs any, before anything large is taken. Ranks on GPUs
    // wait for each other for TIME_LIMIT. SETUP and GPU must outlive this. Throws Error{kDisk}.
    JobState(const JobSetup& setup, const launch::WorkerEnvironment& environment,
             const runtime::RankDevice& gpu, Duration time_limit);

    // Adds what the state needs to the arena that the ranks of this host share: nothing if each has
    // a GPU's memory.
    void add_slices(runtime::ArenaLayout& arena);

    // Makes the state from SAVED, or if it is null from the model as loaded. SAVED must live until
    // the return. THREADS are this rank's. This must outlive the state. Blocks until all ranks that
    // train the same parameters have come.
    [[nodiscard]] std::unique_ptr<runtime::ParameterState> make(RankComms& comms,
                                                                runtime::SavedState* saved,
                                                                int threads);
    // Returns null if ranks are on CPUs. REQUIRES: made.
    [[nodiscard]] runtime::Collectives* collectives_of_gpus() const {
        return gpu_comm_.collectives.get();
    }
    // Logs the offloaded parts and their place.
    void describe_offload() const;

    // Called by all ranks if anything is offloaded: the first rank logs the bytes that all ranks of
    // its host wrote to disk since BEFORE, and the wear of the disks, and PLACEMENT unless it is
    // empty.
    void report_offload(runtime::Collectives& job, const runtime::StateAccount& state,
                        const std::string& placement, const runtime::DiskTraffic& before,
                        const runtime::TrainResult& result) const;

  private:
    [[nodiscard]] zero::ZeroPlace zero_place() const;
    void open_gpu_comm(runtime::Collectives& control);

    const JobSetup& setup_;
    const runtime::RankDevice& gpu_;
    int rank_;
    Duration time_limit_;
    zero::ShardMap shards_;
    std::optional<device::HostDevice> host_;
    std::optional<zero::OffloadFile> offload_;
    zero::ZeroSlices slices_;
    runtime::JobComm gpu_comm_;  // of the GPU's memory; empty: ranks are on CPUs
};

}  // namespace dslaunch::job
