// The parts from which a rank makes its parameters, gradients and optimizer states, and reports on
// them: its own part of them, the places in the arena, the disk. Data path: job setup -> [here]
// -> lib/zero. One thread.
#pragma once

#include <memory>
#include <optional>

#include "device/host_device.h"
#include "job/run/adaptive_placement.h"
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

    // Makes the state from SAVED, or if it is null from the model as loaded; SAVED must live until
    // the return. THREADS are those of this rank. This must outlive the state. Blocks until all
    // ranks that train the same parameters have come.
    [[nodiscard]] std::unique_ptr<runtime::ParameterState> make(RankComms& comms,
                                                                runtime::SavedState* saved,
                                                                int threads);
    // Null if ranks are on CPUs. REQUIRES: made.
    [[nodiscard]] runtime::Collectives* collectives_of_gpus() const {
        return gpu_collectives_.get();
    }
    // Logs the offloaded parts and their place.
    void describe_offload() const;

    // Called by all ranks if anything is offloaded: the first rank logs the bytes that all ranks of
    // its host wrote to disk since BEFORE, and the wear of the disks. PLACEMENT: null if it was
    // fixed.
    void report_offload(runtime::Collectives& job, const runtime::StateAccount& state,
                        const AdaptivePlacement* placement, const runtime::DiskTraffic& before,
                        const runtime::TrainResult& result) const;

  private:
    // The state works with the host's arena, group and collectives, or with those of a GPU.
    struct Memory {
        const runtime::Arena* arena = nullptr;
        runtime::HostGroup* group = nullptr;
        runtime::Collectives* collectives = nullptr;
    };
    [[nodiscard]] zero::ZeroPlace zero_place() const;
    [[nodiscard]] Memory memory_of_gpu(runtime::Collectives& control);

    const JobSetup& setup_;
    const runtime::RankDevice& gpu_;
    int rank_;
    Duration time_limit_;
    zero::ShardMap shards_;
    std::optional<device::HostDevice> host_;
    std::optional<zero::OffloadFile> offload_;
    zero::ZeroSlices slices_;
    std::optional<runtime::Arena> gpu_arena_;
    std::optional<runtime::HostGroup> gpu_group_;
    std::unique_ptr<runtime::Collectives> gpu_collectives_;
};

}  // namespace dslaunch::job
