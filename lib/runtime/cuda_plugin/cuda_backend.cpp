// DeviceBackend on one NVIDIA GPU with two streams. Compute is the device's default stream, on
// which LibTorch runs in every thread that does not choose another. Communication is a stream of
// our own that does not synchronise with it by itself: the executor's events order them.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "runtime/comm/device_backend.h"
#include "runtime/cuda_plugin/fused_adam.h"
#include "runtime/nccl/nccl_communicator.h"

namespace dslaunch::runtime {

namespace {

void expect(cudaError_t result, const char* what) {
    if (result != cudaSuccess)
        fail(ExitCode::kSetup, "CUDA {}: {} ({})", what, cudaGetErrorString(result),
             cudaGetErrorName(result));
}

// Errors of earlier work come to light in any later call on its stream.
void expect_work(cudaError_t result) {
    if (result == cudaSuccess) return;
    if (result == cudaErrorMemoryAllocation) expect(result, "memory");
    fail(ExitCode::kRankFailed,
         "the GPU reports {} ({}) for work that it was given before; CUDA_LAUNCH_BLOCKING=1 makes "
         "it come up where it happens, and `dmesg` shows faults of the GPU itself",
         cudaGetErrorString(result), cudaGetErrorName(result));
}

class CudaEvent final : public device::Event {
  public:
    CudaEvent() { expect(cudaEventCreate(&event_), "event"); }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;
    ~CudaEvent() override { (void)cudaEventDestroy(event_); }

    [[nodiscard]] bool is_reached() override {
        const cudaError_t result = cudaEventQuery(event_);
        if (result != cudaErrorNotReady) expect_work(result);
        return result == cudaSuccess;
    }
    [[nodiscard]] Duration since(const device::Event& earlier) const override {
        float milliseconds = 0;
        expect_work(cudaEventElapsedTime(&milliseconds, event_of(earlier), event_));
        return std::chrono::duration_cast<Duration>(
            std::chrono::duration<double, std::milli>(milliseconds));
    }
    [[nodiscard]] static cudaEvent_t event_of(const device::Event& event) {
        return static_cast<const CudaEvent&>(event).event_;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

class CudaStream final : public device::Stream {
  public:
    explicit CudaStream(c10::cuda::CUDAStream stream) : stream_(stream) {}

    [[nodiscard]] std::unique_ptr<device::Event> make_event() override {
        const c10::cuda::CUDAGuard guard(stream_.device_index());
        return std::make_unique<CudaEvent>();
    }
    void record(device::Event& event) override {
        const c10::cuda::CUDAGuard guard(stream_.device_index());
        expect_work(cudaEventRecord(CudaEvent::event_of(event), stream_.stream()));
    }
    void wait(device::Event& event) override {
        const c10::cuda::CUDAGuard guard(stream_.device_index());
        expect_work(cudaStreamWaitEvent(stream_.stream(), CudaEvent::event_of(event), 0));
    }
    [[nodiscard]] const c10::cuda::CUDAStream& stream() const { return stream_; }

  private:
    c10::cuda::CUDAStream stream_;
};

class CudaBackend final : public DeviceBackend {
  public:
    explicit CudaBackend(int device)
        : device_(static_cast<c10::DeviceIndex>(device)),
          compute_(c10::cuda::getDefaultCUDAStream(device_)),
          communication_(c10::cuda::getStreamFromPool(true, device_)) {}

    std::string device_name() override;
    std::string describe() override;
    std::string make_unique_id() override { return NcclCommunicator::make_unique_id(); }
    void join(const DeviceGroup& group) override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.join(group);
    }
    device::Stream& compute_stream() override { return compute_; }
    device::Stream& communication_stream() override { return communication_; }
    void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.all_reduce(buffer, reduction, communication_.stream());
    }
    void broadcast(const DeviceBuffer& buffer, int root) override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.broadcast(buffer, root, communication_.stream());
    }
    void exchange(DeviceExchange kind, const DeviceBuffer& send,
                  const DeviceBuffer& receive) override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.exchange(kind, send, receive, communication_.stream());
    }
    void check() override { communicator_.check(); }
    void leave() override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.leave();
    }
    void abort() override { communicator_.abort(); }
    void adam(const DeviceAdam& adam) override;

  private:
    c10::DeviceIndex device_;
    CudaStream compute_;
    CudaStream communication_;
    NcclCommunicator communicator_;  // destroyed first: its kernels may still run on the stream
};

std::string CudaBackend::device_name() {
    cudaDeviceProp properties{};
    expect(cudaGetDeviceProperties(&properties, device_), "device properties");
    return properties.name;
}

std::string CudaBackend::describe() {
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

void CudaBackend::adam(const DeviceAdam& adam) {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStreamGuard stream(compute_.stream());
    fused_adam(adam, c10::Device(c10::kCUDA, device_));
}

DeviceBackend* create(int device) {
    int devices = 0;
    expect(cudaGetDeviceCount(&devices), "device count");
    if (device < 0 || device >= devices)
        fail(ExitCode::kSetup, "GPU {} is asked for, this process sees {}", device, devices);
    try {
        const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
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
