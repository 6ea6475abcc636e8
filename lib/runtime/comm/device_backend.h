// What a GPU rank needs beyond LibTorch's CPU libraries: streams, collectives over NCCL, fused
// AdamW. The implementation is a plugin (lib/runtime/cuda_plugin, libdsl_cuda.so) that is opened
// only when the device is a GPU; neither CUDA's nor LibTorch's types appear here, pointers are
// device memory. Where it stands: executor's lanes -> DeviceState -> DeviceBackend -> streams of
// the device.
// Threads: mark_compute, compute_waits_for and adam by the compute lane; join and the collectives
// by the communication lane; check, is_done, finish and abort by any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"

namespace dslaunch::runtime {

enum class DeviceDtype : int { kFloat32, kFloat16, kBfloat16, kByte };
enum class DeviceReduction : int { kSum, kMean };
// From one buffer into another: of SHAPE as HealthCollectives has them (health_collectives.h).
enum class DeviceExchange : int { kSendReceive, kAllGather, kReduceScatter, kAllToAll };

// [numel] of DTYPE, contiguous, on the backend's device; stays until what was asked of it is done.
struct DeviceBuffer {
    void* data = nullptr;
    int64_t numel = 0;
    DeviceDtype dtype = DeviceDtype::kFloat32;
};

// A place in the order of a stream: everything put on it before. 0: nothing.
using DeviceMark = uint64_t;

struct DeviceGroup {
    std::string unique_id;  // from make_unique_id() of one rank, brought to all by broadcast
    int rank = 0;
    int world_size = 1;
    Duration time_limit{};  // of joining, and of each finish()
};

// Flat fp32 buffers of equal length on the device. The two scalars may be written by what stands
// before on the compute stream, so that nobody waits for a norm.
struct DeviceAdam {
    float* parameters = nullptr;
    float* gradients = nullptr;  // left undefined where gradient_divisor is given
    float* momentum = nullptr;
    float* variance = nullptr;
    int64_t numel = 0;
    float* gradient_divisor = nullptr;  // [1] of the device: gradients are divided by it; null: 1
    float* skip = nullptr;              // [1] of the device: 1 leaves everything as it is; null: 0
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    bool decoupled_decay = true;  // AdamW
    bool bias_correction = true;
    int64_t step = 1;  // from 1
};

// Failures throw Error: {kSetup} of the device or its libraries, {kPeerLost} of a communicator,
// {kHang} after a limit.
class DeviceBackend {
  public:
    virtual ~DeviceBackend() = default;

    // "NVIDIA H200"
    [[nodiscard]] virtual std::string device_name() = 0;
    // "NVIDIA H200, 140 GiB, CUDA 13.0, NCCL 2.28"
    [[nodiscard]] virtual std::string describe() = 0;
    [[nodiscard]] virtual std::string make_unique_id() = 0;
    // Waits for all ranks of the group, at most its time limit. Once.
    virtual void join(const DeviceGroup& group) = 0;

    // What the compute stream (the device's default stream) has been given so far.
    [[nodiscard]] virtual DeviceMark mark_compute() = 0;
    // On the communication stream, after AFTER (a mark of the compute stream) is reached; does not
    // block. In place. Every rank of the group calls the same in the same order.
    virtual DeviceMark all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction,
                                  DeviceMark after) = 0;
    virtual DeviceMark broadcast(const DeviceBuffer& buffer, int root, DeviceMark after) = 0;
    // fp32 SEND into RECEIVE of every rank; else as all_reduce.
    virtual DeviceMark exchange(DeviceExchange kind, const DeviceBuffer& send,
                                const DeviceBuffer& receive, DeviceMark after) = 0;
    // What is put on the compute stream from now on runs after MARK of the communication stream;
    // does not block.
    virtual void compute_waits_for(DeviceMark mark) = 0;

    [[nodiscard]] virtual bool is_done(DeviceMark mark) = 0;  // of the communication stream
    // Blocks until MARK of the communication stream is reached; a lost peer or the time limit ends
    // it early.
    virtual void finish(DeviceMark mark) = 0;
    // Throws when the communicator has met an error since. Does not block; call it now and then.
    virtual void check() = 0;
    // Ends the communicator: pending collectives stop. Does not block; the process may leave at
    // once.
    virtual void abort() = 0;

    // On the compute stream; does not block.
    virtual void adam(const DeviceAdam& adam) = 0;
};

// What the plugin exports as `dsl_device_plugin`. A worker refuses another version: both come from
// one build.
inline constexpr uint32_t kDevicePluginVersion = 3;
struct DevicePlugin {
    uint32_t version = 0;
    // Throws Error{kSetup} when there is no such device.
    DeviceBackend* (*create)(int device) = nullptr;
    void (*destroy)(DeviceBackend* backend) = nullptr;
};
using DevicePluginEntry = const DevicePlugin* (*)();

struct DeviceBackendDeleter {
    void (*destroy)(DeviceBackend* backend) = nullptr;
    void operator()(DeviceBackend* backend) const { destroy(backend); }
};
using DeviceBackendPtr = std::unique_ptr<DeviceBackend, DeviceBackendDeleter>;

// Opens the plugin at PATH, which stays open until the process ends. Throws Error{kSetup} naming it
// when it is missing, of another build, or the device cannot be used.
[[nodiscard]] DeviceBackendPtr open_device_backend(const std::string& path, int device);

}  // namespace dslaunch::runtime
