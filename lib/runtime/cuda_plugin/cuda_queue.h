// A queue of work on a GPU: one stream, the kernels of lib/kernels/cuda, and copies. Data path:
// ZeRO state -> [here] -> CUDA. Threads: one at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/queue.h"
#include "kernels/cuda/grid_arguments.h"
#include "runtime/cuda_plugin/cuda_stream.h"

namespace dslaunch::runtime {

// A queue of kernels on a stream of a CUDA device.
class CudaQueue final : public device::Queue {
  public:
    // CHECK is called while the host waits for the stream. It throws errors that occur elsewhere.
    CudaQueue(c10::cuda::CUDAStream stream, std::function<void()> check);

    [[nodiscard]] device::Stream* stream() override { return &stream_; }
    // Waits on the host until the queue is done or CHECK throws, without a time limit: the
    // communicator detects a lost peer.
    void finish() override;
    void copy(void* into, const void* from, int64_t bytes) override;
    void copy_in(void* into, const void* from, int64_t bytes) override;
    void copy_out(void* into, const void* from, int64_t bytes) override;
    void fill(float* into, float value, int64_t numel) override;
    void adam_step(const kernels::FlatRange& range, const kernels::AdamStep& step) override;
    void adagrad_step(const kernels::FlatRange& range, const kernels::AdagradStep& step) override;
    void lion_step(const kernels::FlatRange& range, const kernels::LionStep& step) override;
    void sgd_step(const kernels::FlatRange& range, const kernels::SgdStep& step) override;
    void ordered_sum(std::span<const float* const> sources, float scale, float* out,
                     int64_t numel) override;
    void accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                        int64_t numel) override;
    void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) override;
    [[nodiscard]] std::vector<double> sums_of_squares(
        std::span<const device::FloatArray> arrays) override;
    void flag_nonfinite(std::span<const device::FloatArray> arrays, float* flags) override;

    // Returns the stream, for NCCL.
    [[nodiscard]] cudaStream_t cuda_stream() const { return stream_.stream().stream(); }
    // Sets BYTES of the device's memory to 0.
    void zero(void* into, int64_t bytes);

  private:
    // Device memory for a list that is made on the host, and for its results. It grows and is never
    // freed.
    struct List {
        std::vector<kernels::GridValues> of_host;  // the host's copy of the list on the device
        void* arrays = nullptr;
        double* sums = nullptr;
        int64_t room = 0;  // elements
    };
    void bring_list(std::span<const device::FloatArray> arrays);

    CudaStream stream_;
    std::function<void()> check_;
    std::unique_ptr<device::Event> finished_;
    List squares_;
};

}  // namespace dslaunch::runtime
