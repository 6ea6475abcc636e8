// Makes a rank's parameters, gradients and optimizer states, and reports on them. Uses the rank's
// share of them, their places in the arena, and the disk. Data path: job setup -> [here] ->
// lib/zero. One thread.
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

// Makes the parameters, gradients and optimizer states of one rank. The calls come in this order:
// constructor, add_slices(), make(), reports.
class JobState {
  public:
    // Reserves the space on disk, if the plan needs any, before large amounts of memory are taken.
    // TIME_LIMIT is how long ranks on GPUs wait for each other. SETUP and GPU must outlive this
    // object. Throws Error{kDisk}.
    JobState(const JobSetup& setup, const launch::WorkerEnvironment& environment,
             const runtime::RankDevice& gpu, Duration time_limit);

    // Adds the slices of the state to the arena that the ranks of this host share. Adds nothing if
    // each rank uses the memory of a GPU.
    void add_slices(runtime::ArenaLayout& arena);

    // Makes the state from SAVED or, if SAVED is null, from the model as loaded. SAVED must live
    // until this returns. THREADS is the number of this rank's threads. This object must outlive
    // the state. Blocks until all ranks that train the same parameters have called it.
    [[nodiscard]] std::unique_ptr<runtime::ParameterState> make(RankComms& comms,
                                                                runtime::SavedState* saved,
                                                                int threads);
    // Returns null if ranks are on CPUs. REQUIRES: make() has been called.
    [[nodiscard]] runtime::Collectives* collectives_of_gpus() const {
        return gpu_comm_.collectives.get();
    }
    // Logs which parts are offloaded, and to where.
    void describe_offload() const;

    // Called by all ranks if anything is offloaded. The first rank logs the bytes that all ranks of
    // its host have written to disk since BEFORE, the wear of the disks, and PLACEMENT unless it is
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
    runtime::JobComm gpu_comm_;  // between GPUs; empty: ranks are on CPUs
};

}  // namespace dslaunch::job
