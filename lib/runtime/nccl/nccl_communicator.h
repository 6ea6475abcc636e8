// One NCCL communicator without blocking calls: join, each collective and the end are polled with a
// time limit, so that a lost peer becomes an error and never a hang. NCCL's communicators are not
// thread-safe: a lock guards each NCCL call, and no call is made after the communicator has ended.
// Threads: one thread calls join, the collectives and leave; any thread may call check and abort.
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

// One communicator; see the top of this file.
class NcclCommunicator final : public DeviceCommunicator {
  public:
    // The collectives run on STREAM. REQUIRES: its device is the only one that the process sees.
    explicit NcclCommunicator(cudaStream_t stream) : stream_(stream) {}
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;
    ~NcclCommunicator() override { abort(); }

    // Returns a new id for DeviceGroup::unique_id.
    [[nodiscard]] static std::string make_unique_id();

    // Joins a group. May be called again once the communicator has ended. Throws Error{kPeerLost}
    // or {kHang}.
    void join(const DeviceGroup& group);
    // REQUIRES: a group was joined.
    void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) override;
    void broadcast(const DeviceBuffer& buffer, int root) override;
    void reduce_ranges(const DeviceBuffer& buffer, DeviceReduction reduction,
                       std::span<const NodeRange> ranges) override;
    void gather_ranges(const DeviceBuffer& buffer, std::span<const NodeRange> ranges) override;
    void exchange(DeviceExchange kind, const DeviceBuffer& send,
                  const DeviceBuffer& receive) override;
    void exchange_with(int peer, const DeviceBuffer& send, const DeviceBuffer& receive) override;
    // Ends the communicator once all its work is done on every rank of the group. Does nothing if
    // there is no communicator. Throws as join() does; after an error, the communicator has been
    // aborted.
    void leave();
    // Throws Error{kPeerLost} if NCCL has met an error or a group was aborted. Does not block. Does
    // nothing on a rank that has joined no group.
    void check();
    // Ends the communicator at once: collectives under way stop, and threads that wait for them get
    // Error{kPeerLost}. Does not block: a separate thread does the part that may take long, and
    // _exit may interrupt it.
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
    std::mutex mutex_;  // guards communicator_ and each call on it
    ncclComm_t communicator_ = nullptr;
    bool aborted_ = false;  // true if the last group was aborted
};

}  // namespace dslaunch::runtime
