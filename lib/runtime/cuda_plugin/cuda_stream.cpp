#include "runtime/cuda_plugin/cuda_stream.h"

#include <c10/cuda/CUDAGuard.h>

#include "base/error.h"

namespace dslaunch::runtime {

void expect(cudaError_t result, const char* what) {
    if (result != cudaSuccess)
        fail(ExitCode::kSetup, "CUDA {}: {} ({})", what, cudaGetErrorString(result),
             cudaGetErrorName(result));
}

// Throws kRankFailed, not kSetup: any call on a stream may report errors of earlier work.
void expect_work(cudaError_t result) {
    if (result == cudaSuccess) return;
    if (result == cudaErrorMemoryAllocation) expect(result, "memory");
    fail(ExitCode::kRankFailed,
         "the GPU reports {} ({}) for earlier work; set CUDA_LAUNCH_BLOCKING=1 to see the error "
         "where it happens, and check `dmesg` for faults of the GPU itself",
         cudaGetErrorString(result), cudaGetErrorName(result));
}

namespace {

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

}  // namespace

std::unique_ptr<device::Event> CudaStream::make_event() {
    const c10::cuda::CUDAGuard guard(stream_.device_index());
    return std::make_unique<CudaEvent>();
}

void CudaStream::record(device::Event& event) {
    const c10::cuda::CUDAGuard guard(stream_.device_index());
    expect_work(cudaEventRecord(CudaEvent::event_of(event), stream_.stream()));
}

void CudaStream::wait(device::Event& event) {
    const c10::cuda::CUDAGuard guard(stream_.device_index());
    expect_work(cudaStreamWaitEvent(stream_.stream(), CudaEvent::event_of(event), 0));
}

void CudaStream::check() {
    const cudaError_t result = cudaStreamQuery(stream_.stream());
    if (result != cudaErrorNotReady) expect_work(result);
}

}  // namespace dslaunch::runtime
