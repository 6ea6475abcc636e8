// A GPU as a rank needs it beyond LibTorch: a device whose queues are streams, and collectives over
// NCCL. The implementation is a plugin (lib/runtime/cuda_plugin, libdsl_cuda.so), opened only if
// the device is a GPU. Neither CUDA's nor LibTorch's types appear here; pointers are device memory.
// Data path: executor's lanes, ZeRO state -> DeviceBackend -> streams of the device. LibTorch
// computes on the compute queue's stream in every thread that does not choose another. Threads: as
// device::Device says; the communication lane calls join, the collectives and leave, any thread
// check and abort.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/kinds/dtype.h"
#include "device/device.h"
#include "runtime/comm/ranks/node_ranges.h"

namespace dslaunch::runtime {

enum class DeviceReduction : int { kSum, kMean };
// Operations from one buffer into another, with HealthCollectives' shapes (board.h).
enum class DeviceExchange : int { kSendReceive, kAllGather, kReduceScatter, kAllToAll };

// [numel] of DTYPE, kF32 or kU8, contiguous, on the backend's device. It must live until the work
// on it is done.
struct DeviceBuffer {
    void* data = nullptr;
    int64_t numel = 0;
    DType dtype = DType::kF32;
};

struct DeviceGroup {
    std::string unique_id;  // made by make_unique_id() on one rank, brought to all by broadcast
    int rank = 0;
    int world_size = 1;
    Duration time_limit{};  // limit of joining, leaving, and of NCCL's own starts
};

// The collectives of the ranks of one group, on the communication queue's stream of a backend. They
// do not block. Every rank of the group makes the same calls in the same order.
class DeviceCommunicator {
  public:
    virtual ~DeviceCommunicator() = default;

    virtual void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) = 0;
    virtual void broadcast(const DeviceBuffer& buffer, int root) = 0;
    // Reduces each of RANGES, which tile a part of the fp32 BUFFER, on the rank of the group that
    // its `node` says, and ranges of kEveryNode on all. Other ranks' ranges are undefined
    // afterwards. REQUIRES: the ranges are equal on all ranks.
    virtual void reduce_ranges(const DeviceBuffer& buffer, DeviceReduction reduction,
                               std::span<const NodeRange> ranges) = 0;
    // Brings each of RANGES, which tile BUFFER, from the rank that has it to all. Ranges of
    // kEveryNode stay as they are. REQUIRES: as above.
    virtual void gather_ranges(const DeviceBuffer& buffer, std::span<const NodeRange> ranges) = 0;
    // Exchanges fp32 SEND into RECEIVE of every rank.
    virtual void exchange(DeviceExchange kind, const DeviceBuffer& send,
                          const DeviceBuffer& receive) = 0;
    // Sends SEND to PEER and receives as much from it, at the same time. PEER calls it too; other
    // ranks need not.
    virtual void exchange_with(int peer, const DeviceBuffer& send, const DeviceBuffer& receive) = 0;
};

// The memory of a device, as this process sees it.
struct DeviceMemoryState {
    Bytes total;
    Bytes left;       // for this process, what it holds and does not use included
    Bytes peak;       // the most that was in use since restart_peak()
    Bytes peak_held;  // the most that this process held since then
};

// Failures throw Error: {kSetup} for the device or its libraries, {kRankFailed} for work that
// failed on the device, {kPeerLost} for a communicator, {kHang} after a limit.
class DeviceBackend : public device::Device {
  public:
    [[nodiscard]] bool is_host() const final { return false; }

    // Returns LibTorch's number (c10::DeviceType) of the kind of device that its tensors lie on.
    [[nodiscard]] virtual int torch_device_type() const = 0;
    // Returns a name such as "NVIDIA H200".
    [[nodiscard]] virtual std::string device_name() = 0;
    // Returns a text such as "NVIDIA H200, 140 GiB, CUDA 13.0, NCCL 2.28".
    [[nodiscard]] virtual std::string describe() = 0;
    [[nodiscard]] virtual DeviceMemoryState memory_state() = 0;
    virtual void restart_peak() = 0;
    [[nodiscard]] virtual std::string make_unique_id() = 0;
    // Waits for all ranks of the group, at most its time limit. A rank may be in several groups;
    // those that share ranks are joined, and later used, in one order by all of these. The result
    // is valid until leave().
    virtual DeviceCommunicator& join(const DeviceGroup& group) = 0;

    // Throws if a communicator has met an error since. Does not block, and is called now and then.
    virtual void check() = 0;
    // Ends all communicators when the work of all their ranks is done, at most after their time
    // limits. Every rank calls it; without a communicator it does nothing.
    virtual void leave() = 0;
    // Ends all communicators at once: pending collectives stop. Does not block, and the process may
    // exit at once.
    virtual void abort() = 0;
};

// The data that the plugin exports as `dsl_device_plugin`. A worker refuses another version, since
// both come from one build.
inline constexpr uint32_t kDevicePluginVersion = 10;
struct DevicePlugin {
    uint32_t version = 0;
    // Throws Error{kSetup} if there is no such device.
    DeviceBackend* (*create)(int device) = nullptr;
    void (*destroy)(DeviceBackend* backend) = nullptr;
};

struct DeviceBackendDeleter {
    void (*destroy)(DeviceBackend* backend) = nullptr;
    void operator()(DeviceBackend* backend) const { destroy(backend); }
};
using DeviceBackendPtr = std::unique_ptr<DeviceBackend, DeviceBackendDeleter>;

// Returns the plugin of this program's own build, which lies beside it.
[[nodiscard]] std::string own_device_plugin();

// Opens the plugin at PATH, which stays open until the process ends. Throws Error{kSetup} naming it
// if it is missing, is of another build, or the device cannot be used.
[[nodiscard]] DeviceBackendPtr open_device_backend(const std::string& path, int device);

}  // namespace dslaunch::runtime
