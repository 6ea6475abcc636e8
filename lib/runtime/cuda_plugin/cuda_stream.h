// Streams and events of a GPU, and errors of CUDA calls. Data path: executor's lanes -> [here] ->
// CUDA. Threads: the rules of device::Stream apply.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "device/stream.h"

namespace dslaunch::runtime {

// Throws Error{kSetup}, naming WHAT, if RESULT is an error.
void expect(cudaError_t result, const char* what);
// Throws Error{kRankFailed} if RESULT is an error. Used for calls that may report errors of earlier
// work.
void expect_work(cudaError_t result);

// A stream of a CUDA device, and its events.
class CudaStream final : public device::Stream {
  public:
    explicit CudaStream(c10::cuda::CUDAStream stream) : stream_(stream) {}

    [[nodiscard]] std::unique_ptr<device::Event> make_event() override;
    void record(device::Event& event) override;
    void wait(device::Event& event) override;
    void check() override;
    // Returns LibTorch's form of the stream.
    [[nodiscard]] const c10::cuda::CUDAStream& stream() const { return stream_; }

  private:
    c10::cuda::CUDAStream stream_;
};

}  // namespace dslaunch::runtime
