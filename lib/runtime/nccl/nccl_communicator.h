// One NCCL communicator without blocking calls: joining, each collective and the end are polled
// with a time limit, so that a lost peer is an error and never a hang. NCCL's communicators are not
// thread-safe: a lock guards each call of NCCL, and no call follows the communicator's end.
// Threads: one for join, collectives and leave, any for check and abort.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "base/clock.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

class NcclCommunicator final : public DeviceCommunicator {
  public:
    // Puts the collectives on STREAM. REQUIRES: its device is the only one that the process sees.
    explicit NcclCommunicator(cudaStream_t stream) : stream_(stream) {}
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;
    ~NcclCommunicator() override { abort(); }

    [[nodiscard]] static std::string make_unique_id();

    // Joins a group; also another one, once the last has ended. Throws Error{kPeerLost} or {kHang}.
    void join(const DeviceGroup& group);
    // REQUIRES: joined.
    void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) override;
    void broadcast(const DeviceBuffer& buffer, int root) override;
    void reduce_ranges(const DeviceBuffer& buffer, DeviceReduction reduction,
                       std::span<const NodeRange> ranges) override;
    void gather_ranges(const DeviceBuffer& buffer, std::span<const NodeRange> ranges) override;
    void exchange(DeviceExchange kind, const DeviceBuffer& send,
                  const DeviceBuffer& receive) override;
    void exchange_with(int peer, const DeviceBuffer& send, const DeviceBuffer& receive) override;
    // Ends the communicator when all its work is done, on every rank of the group. Without one it
    // does nothing. Throws as join does; the communicator is aborted then.
    void leave();
    // Throws Error{kPeerLost} if NCCL has met an error, or a group was aborted. Does not block. A
    // rank that has joined nobody has nothing to check.
    void check();
    // Ends the communicator at once: collectives under way stop, and who waits for them gets
    // Error{kPeerLost}. Does not block. A thread of its own does what may take long, and _exit may
    // cut it off.
    void abort();

  private:
    using Call = std::function<ncclResult_t(ncclComm_t)>;
    void call(const char* what, const Call& call);
    void start(const char* what, const Call& call);
    void wait_until_started(const char* what);
    using InGroup = std::function<ncclResult_t(ncclComm_t, const NodeRange& range)>;
    void start_group(const char* what, std::span<const NodeRange> ranges, const InGroup& call);
    [[nodiscard]] bool are_even_parts(std::span<const NodeRange> ranges) const;
    [[nodiscard]] ncclResult_t exchange_parts(DeviceExchange kind, const DeviceBuffer& send,
                                              const DeviceBuffer& receive,
                                              ncclComm_t communicator) const;

    cudaStream_t stream_;
    DeviceGroup group_;
    std::mutex mutex_;  // guards communicator_, and each call with it
    ncclComm_t communicator_ = nullptr;
    bool aborted_ = false;  // true if the last group was
};

}  // namespace dslaunch::runtime
