// DeviceBackend on one NVIDIA GPU with three streams. Compute is the device's default stream, which
// LibTorch uses in every thread that does not choose another. Communication and copies are streams
// of our own that do not synchronise with it implicitly: the executor's events order them.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "runtime/comm/device_backend.h"
#include "runtime/cuda_plugin/cuda_queue.h"
#include "runtime/nccl/nccl_communicator.h"

namespace dslaunch::runtime {

namespace {

class CudaBackend final : public DeviceBackend {
  public:
    explicit CudaBackend(int device)
        : device_(static_cast<c10::DeviceIndex>(device)),
          compute_(c10::cuda::getDefaultCUDAStream(device_), [this] { check(); }),
          communication_(c10::cuda::getStreamFromPool(true, device_), [this] { check(); }),
          copies_(c10::cuda::getStreamFromPool(false, device_), [this] { check(); }) {}

    int torch_device_type() const override { return static_cast<int>(c10::kCUDA); }
    std::string device_name() override {
        cudaDeviceProp properties{};
        expect(cudaGetDeviceProperties(&properties, device_), "device properties");
        return properties.name;
    }
    std::string describe() override {
        cudaDeviceProp properties{};
        expect(cudaGetDeviceProperties(&properties, device_), "device properties");
        int runtime = 0;
        expect(cudaRuntimeGetVersion(&runtime), "version");
        int nccl = 0;
        (void)ncclGetVersion(&nccl);
        return fmt::format("{}, {}, CUDA {}.{}, NCCL {}.{}.{}", properties.name,
                           to_text(Bytes{static_cast<int64_t>(properties.totalGlobalMem)}),
                           runtime / 1000, runtime % 1000 / 10, nccl / 10000, nccl % 10000 / 100,
                           nccl % 100);
    }

    DeviceMemoryState memory_state() override {
        const c10::cuda::CUDAGuard guard(device_);
        size_t free = 0, total = 0;
        expect(cudaMemGetInfo(&free, &total), "memory");
        const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_);
        constexpr size_t kAll = 0;  // StatType::AGGREGATE
        const int64_t cached =
            stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
        return {Bytes{static_cast<int64_t>(total)}, Bytes{static_cast<int64_t>(free) + cached},
                Bytes{stats.allocated_bytes[kAll].peak}, Bytes{stats.reserved_bytes[kAll].peak}};
    }

    void restart_peak() override { c10::cuda::CUDACachingAllocator::resetPeakStats(device_); }
    std::string make_unique_id() override { return NcclCommunicator::make_unique_id(); }
    DeviceCommunicator& join(const DeviceGroup& group) override {
        const c10::cuda::CUDAGuard guard(device_);
        auto made = std::make_unique<NcclCommunicator>(communication_.cuda_stream());
        NcclCommunicator& communicator = *made;
        {
            // From now on abort() also ends the join.
            const std::lock_guard lock(mutex_);
            communicators_.push_back(std::move(made));
        }
        communicator.join(group);
        return communicator;
    }

    // LibTorch's allocator counts the memory that it gives out, in its peak statistics too.
    device::Memory allocate(Bytes bytes, std::string_view what) override {
        if (bytes.value == 0) return {};
        const c10::cuda::CUDAGuard guard(device_);
        void* memory = nullptr;
        try {
            memory = c10::cuda::CUDACachingAllocator::raw_alloc(static_cast<size_t>(bytes.value));
        } catch (const c10::OutOfMemoryError& error) {
            fail(ExitCode::kSetup,
                 "the GPU does not have {} of free memory for {}: {}; use a higher "
                 "zero_optimization.stage, a smaller model or batch, or more GPUs",
                 to_text(bytes), what, torch_reason(error));
        } catch (const c10::Error& error) {
            // Like all CUDA calls, the allocator's calls may report the failure of earlier work.
            fail(ExitCode::kRankFailed, "the GPU could not allocate {} for {}: {}", to_text(bytes),
                 what, torch_reason(error));
        }
        compute_.zero(memory, bytes.value);
        return {{static_cast<std::byte*>(memory), static_cast<size_t>(bytes.value)},
                [memory] { c10::cuda::CUDACachingAllocator::raw_delete(memory); }};
    }

    device::Queue& compute() override { return compute_; }
    device::Queue& communication() override { return communication_; }
    device::Queue& copies() override { return copies_; }

    void check() override {
        const std::lock_guard lock(mutex_);
        for (const auto& communicator : communicators_) communicator->check();
    }
    void leave() override {
        const c10::cuda::CUDAGuard guard(device_);
        for (const auto& communicator : communicators_) communicator->leave();
        const std::lock_guard lock(mutex_);
        communicators_.clear();
    }
    void abort() override {
        const std::lock_guard lock(mutex_);
        for (const auto& communicator : communicators_) communicator->abort();
    }

  private:
    c10::DeviceIndex device_;
    CudaQueue compute_;
    CudaQueue communication_;
    CudaQueue copies_;
    std::mutex mutex_;  // guards the list below
    // The communicators are destroyed before the queues, because their kernels may still run on the
    // stream. Only the communication lane changes the list.
    std::vector<std::unique_ptr<NcclCommunicator>> communicators_;
};

DeviceBackend* create(int device) {
    int devices = 0;
    expect(cudaGetDeviceCount(&devices), "device count");
    if (device < 0 || device >= devices)
        fail(ExitCode::kSetup, "GPU {} was requested, but this process sees only {} GPU(s)", device,
             devices);
    try {
        const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
        // LibTorch sets up its allocator when it makes its first tensor on the GPU, but allocate()
        // may be called before that.
        at::globalContext().lazyInitDevice(c10::kCUDA);
        return std::make_unique<CudaBackend>(device).release();
    } catch (const c10::Error& error) {
        fail(ExitCode::kSetup, "GPU {} cannot be used: {}", device, torch_reason(error));
    }
}

void destroy(DeviceBackend* backend) {
    const std::unique_ptr<DeviceBackend> owner(backend);
}

}  // namespace

}  // namespace dslaunch::runtime

extern "C" __attribute__((visibility("default"))) const dslaunch::runtime::DevicePlugin*
dsl_device_plugin() {
    static constexpr dslaunch::runtime::DevicePlugin kPlugin{
        dslaunch::runtime::kDevicePluginVersion, &dslaunch::runtime::create,
        &dslaunch::runtime::destroy};
    return &kPlugin;
}
