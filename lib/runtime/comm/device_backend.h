// The functions of a GPU that a rank needs in addition to LibTorch: a device whose queues are
// streams, and collectives over NCCL. The implementation is a plugin (lib/runtime/cuda_plugin,
// libdsl_cuda.so), opened only if the device is a GPU. No CUDA or LibTorch types appear here;
// pointers are device memory. Data path: executor's lanes, ZeRO state -> DeviceBackend -> streams
// of the device. LibTorch computes on the compute queue's stream in every thread that has chosen no
// other stream. Threads: the rules of device::Device apply. The communication lane calls join, the
// collectives and leave; any thread may call check and abort.
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

// The result of a reduction: the sum over the ranks, or the sum divided by their number.
enum class DeviceReduction : int { kSum, kMean };
// Operations from one buffer into another. HealthCollectives (board.h) says how many elements they
// send and receive.
enum class DeviceExchange : int { kSendReceive, kAllGather, kReduceScatter, kAllToAll };

// NUMEL contiguous elements of DTYPE (kF32 or kU8) on the backend's device. The memory must stay
// valid until the work on it is done.
struct DeviceBuffer {
    void* data = nullptr;
    int64_t numel = 0;
    DType dtype = DType::kF32;
};

// The ranks that make up a communicator, and this rank's place among them.
struct DeviceGroup {
    std::string unique_id;  // from make_unique_id() on one rank, sent to all others
    int rank = 0;
    int world_size = 1;
    Duration time_limit{};  // limit of join(), of leave(), and of each start of an NCCL operation
};

// The collectives of one group of ranks. They are queued on the backend's stream for communication,
// so calls do not block. Every rank of the group makes the same calls in the same order.
class DeviceCommunicator {
  public:
    virtual ~DeviceCommunicator() = default;

    // Replaces BUFFER by its reduction over all ranks of the group.
    virtual void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) = 0;
    // Copies BUFFER from the rank ROOT of the group to all others.
    virtual void broadcast(const DeviceBuffer& buffer, int root) = 0;
    // Reduces each of RANGES. Its sums go to the rank of the group whose index is the range's
    // `node`, or to all ranks for kEveryNode. The ranges tile a part of BUFFER, which is fp32.
    // Afterwards, BUFFER is undefined in the ranges that were reduced to other ranks only.
    // REQUIRES: the ranges are equal on all ranks.
    virtual void reduce_ranges(const DeviceBuffer& buffer, DeviceReduction reduction,
                               std::span<const NodeRange> ranges) = 0;
    // Copies each of RANGES from the rank that its `node` names to all ranks. The ranges tile
    // BUFFER. Ranges of kEveryNode stay as they are. REQUIRES: the ranges are equal on all ranks.
    virtual void gather_ranges(const DeviceBuffer& buffer, std::span<const NodeRange> ranges) = 0;
    // Carries out KIND: every rank sends SEND, and RECEIVE gets the values that arrive. Both are
    // fp32.
    virtual void exchange(DeviceExchange kind, const DeviceBuffer& send,
                          const DeviceBuffer& receive) = 0;
    // Sends SEND to PEER and fills RECEIVE from PEER, at the same time. PEER must call it too;
    // other ranks need not.
    virtual void exchange_with(int peer, const DeviceBuffer& send, const DeviceBuffer& receive) = 0;
};

// The memory of a device, as this process sees it.
struct DeviceMemoryState {
    Bytes total;
    Bytes left;       // free for this process, including what it holds but does not use
    Bytes peak;       // the most that was in use since restart_peak()
    Bytes peak_held;  // the most that this process held since restart_peak()
};

// A GPU and its communicators. Its functions throw Error. The code is kSetup for an error of the
// device or its libraries, kRankFailed for work that failed on the device, kPeerLost for an error
// of a communicator, and kHang after a time limit.
class DeviceBackend : public device::Device {
  public:
    // A backend is never the host.
    [[nodiscard]] bool is_host() const final { return false; }

    // Returns LibTorch's number (c10::DeviceType) of the device type of its tensors.
    [[nodiscard]] virtual int torch_device_type() const = 0;
    // Returns a name such as "NVIDIA H200".
    [[nodiscard]] virtual std::string device_name() = 0;
    // Returns a text such as "NVIDIA H200, 140 GiB, CUDA 13.0, NCCL 2.28".
    [[nodiscard]] virtual std::string describe() = 0;
    // Returns the memory in use and its peaks. restart_peak() begins new peaks.
    [[nodiscard]] virtual DeviceMemoryState memory_state() = 0;
    virtual void restart_peak() = 0;
    // Returns a new id for DeviceGroup::unique_id.
    [[nodiscard]] virtual std::string make_unique_id() = 0;
    // Joins a communicator of GROUP. Waits for all ranks of the group, for at most its time limit.
    // A rank may be in several groups. All ranks that share several groups join and use them in the
    // same order. The result is valid until leave().
    virtual DeviceCommunicator& join(const DeviceGroup& group) = 0;

    // Throws if a communicator has met an error. Does not block. Lanes call it again and again
    // while they wait for the device.
    virtual void check() = 0;
    // Ends all communicators once their work is done on all ranks. Each communicator ends at its
    // time limit at the latest. Every rank calls it. Does nothing if there is no communicator.
    virtual void leave() = 0;
    // Ends all communicators at once: collectives under way stop. Does not block, and the process
    // may exit immediately afterwards.
    virtual void abort() = 0;
};

// The version of DevicePlugin, the data that the plugin exports as `dsl_device_plugin`. A worker
// refuses any other version, since plugin and worker must come from the same build.
inline constexpr uint32_t kDevicePluginVersion = 10;
// The functions that the plugin exports.
struct DevicePlugin {
    uint32_t version = 0;
    // Throws Error{kSetup} if there is no such device.
    DeviceBackend* (*create)(int device) = nullptr;
    void (*destroy)(DeviceBackend* backend) = nullptr;
};

// Destroys a backend by the function of the plugin that made it.
struct DeviceBackendDeleter {
    void (*destroy)(DeviceBackend* backend) = nullptr;
    // REQUIRES: DESTROY was set.
    void operator()(DeviceBackend* backend) const { destroy(backend); }
};
using DeviceBackendPtr = std::unique_ptr<DeviceBackend, DeviceBackendDeleter>;

// Returns the path of the plugin that was built with this program. The plugin is in the program's
// folder.
[[nodiscard]] std::string own_device_plugin();

// Opens the plugin at PATH, which stays open until the process ends. Throws Error{kSetup}, naming
// PATH, if it is missing or from another build, or if the device cannot be used.
[[nodiscard]] DeviceBackendPtr open_device_backend(const std::string& path, int device);

}  // namespace dslaunch::runtime
