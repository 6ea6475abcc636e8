// DeviceBackend on one NVIDIA GPU with two streams. Compute is the device's default stream, on
// which LibTorch runs in every thread that does not choose another. Communication is a stream of
// our own that does not synchronise with it by itself.
//
// Events order the streams. mark_compute records an event on compute (after a Backward), and
// communication waits for it before it reduces what that Backward wrote. Each collective records
// one on communication. Compute waits for it before it updates from the result, and the host asks
// for it in is_done and finish.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <mutex>

#include "base/bytes.h"
#include "base/check.h"
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

// The marks on one stream, in order. Old events are reused: the stream is in order, so a newer
// event stands for an older mark.
class MarkedStream {
  public:
    explicit MarkedStream(cudaStream_t stream) : stream_(stream) {
        for (cudaEvent_t& event : events_)
            expect(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
    }
    MarkedStream(const MarkedStream&) = delete;
    MarkedStream& operator=(const MarkedStream&) = delete;
    ~MarkedStream() {
        for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    }

    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    DeviceMark mark() {
        const std::lock_guard lock(mutex_);
        ++last_;
        expect(cudaEventRecord(kept_event(last_), stream_), "event record");
        return last_;
    }
    // Lets OTHER run its later work after MARK of this stream.
    void hold(cudaStream_t other, DeviceMark mark) {
        if (mark == 0) return;
        const std::lock_guard lock(mutex_);
        expect(cudaStreamWaitEvent(other, event_of(mark), 0), "stream wait");
    }
    [[nodiscard]] bool is_reached(DeviceMark mark) {
        if (mark == 0) return true;
        const std::lock_guard lock(mutex_);
        const cudaError_t result = cudaEventQuery(event_of(mark));
        if (result != cudaErrorNotReady) expect(result, "stream");
        return result == cudaSuccess;
    }

  private:
    static constexpr size_t kEvents = 64;

    cudaEvent_t& kept_event(DeviceMark mark) { return events_[mark % kEvents]; }
    cudaEvent_t event_of(DeviceMark mark) {
        DSL_CHECK(mark <= last_, "mark {} of {}", mark, last_);
        return kept_event(mark + kEvents > last_ ? mark : last_ - kEvents + 1);
    }

    cudaStream_t stream_;
    std::mutex mutex_;
    DeviceMark last_ = 0;
    std::array<cudaEvent_t, kEvents> events_{};
};

class CudaBackend final : public DeviceBackend {
  public:
    explicit CudaBackend(int device)
        : device_(static_cast<c10::DeviceIndex>(device)),
          compute_stream_(c10::cuda::getDefaultCUDAStream(device_)),
          communication_stream_(c10::cuda::getStreamFromPool(true, device_)),
          compute_(compute_stream_.stream()),
          communication_(communication_stream_.stream()) {}

    std::string device_name() override;
    std::string describe() override;
    std::string make_unique_id() override { return NcclCommunicator::make_unique_id(); }
    void join(const DeviceGroup& group) override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.join(group);
    }
    DeviceMark mark_compute() override {
        const c10::cuda::CUDAGuard guard(device_);
        return compute_.mark();
    }
    DeviceMark all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction,
                          DeviceMark after) override {
        const c10::cuda::CUDAGuard guard(device_);
        compute_.hold(communication_.stream(), after);
        communicator_.all_reduce(buffer, reduction, communication_.stream());
        return communication_.mark();
    }
    DeviceMark broadcast(const DeviceBuffer& buffer, int root, DeviceMark after) override {
        const c10::cuda::CUDAGuard guard(device_);
        compute_.hold(communication_.stream(), after);
        communicator_.broadcast(buffer, root, communication_.stream());
        return communication_.mark();
    }
    DeviceMark exchange(DeviceExchange kind, const DeviceBuffer& send, const DeviceBuffer& receive,
                        DeviceMark after) override {
        const c10::cuda::CUDAGuard guard(device_);
        compute_.hold(communication_.stream(), after);
        communicator_.exchange(kind, send, receive, communication_.stream());
        return communication_.mark();
    }
    void compute_waits_for(DeviceMark mark) override {
        const c10::cuda::CUDAGuard guard(device_);
        communication_.hold(compute_.stream(), mark);
    }
    bool is_done(DeviceMark mark) override { return communication_.is_reached(mark); }
    void finish(DeviceMark mark) override;
    void check() override { communicator_.check(); }
    void leave() override {
        const c10::cuda::CUDAGuard guard(device_);
        communicator_.leave();
    }
    void abort() override { communicator_.abort(); }
    void adam(const DeviceAdam& adam) override;

  private:
    c10::DeviceIndex device_;
    c10::cuda::CUDAStream compute_stream_;
    c10::cuda::CUDAStream communication_stream_;
    MarkedStream compute_;
    MarkedStream communication_;
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

void CudaBackend::finish(DeviceMark mark) {
    constexpr auto kPollInterval = std::chrono::microseconds(50);
    SystemClock clock;
    const TimePoint deadline = clock.now() + communicator_.time_limit();
    while (!is_done(mark)) {
        communicator_.check();
        if (clock.now() > deadline) {
            communicator_.abort();
            fail(ExitCode::kHang, "a collective on GPU {} did not end within {:.3f} s", device_,
                 to_milliseconds(communicator_.time_limit()) / 1000);
        }
        clock.sleep_for(kPollInterval);
    }
}

void CudaBackend::adam(const DeviceAdam& adam) {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStreamGuard stream(compute_stream_);
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
