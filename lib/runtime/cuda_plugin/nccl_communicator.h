// One NCCL communicator without blocking calls: joining and every collective are polled with a time
// limit, so that a lost peer is an error and never a hang. Threads: one for join and collectives,
// any for check and abort.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <mutex>
#include <string>

#include "base/clock.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

class NcclCommunicator {
  public:
    NcclCommunicator() = default;
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;
    ~NcclCommunicator() { abort(); }

    [[nodiscard]] static std::string make_unique_id();

    // Throws Error{kPeerLost} or {kHang}. REQUIRES: the current device is the rank's.
    void join(const DeviceGroup& group);
    // These functions put the collective on STREAM. REQUIRES: joined.
    void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction, cudaStream_t stream);
    void broadcast(const DeviceBuffer& buffer, int root, cudaStream_t stream);
    void exchange(DeviceExchange kind, const DeviceBuffer& send, const DeviceBuffer& receive,
                  cudaStream_t stream);
    // Throws Error{kPeerLost} if NCCL has met an error, or abort() was called. Does not block.
    void check();
    // Does not block. A thread of its own ends the communicator, and _exit may leave it behind.
    void abort();

    [[nodiscard]] Duration time_limit() const { return group_.time_limit; }

  private:
    [[nodiscard]] ncclComm_t communicator();
    void wait_until_started(const char* what);
    void send_parts(DeviceExchange kind, const DeviceBuffer& send, const DeviceBuffer& receive,
                    cudaStream_t stream);

    DeviceGroup group_;
    std::mutex mutex_;  // guards communicator_
    ncclComm_t communicator_ = nullptr;
};

}  // namespace dslaunch::runtime
