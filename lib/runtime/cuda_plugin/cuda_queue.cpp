#include "runtime/cuda_plugin/cuda_queue.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/update_arguments.h"

namespace dslaunch::runtime {

using kernels::FlatRange;

CudaQueue::CudaQueue(c10::cuda::CUDAStream stream, std::function<void()> check)
    : stream_(stream), check_(std::move(check)), finished_(stream_.make_event()) {}

void CudaQueue::finish() {
    stream_.record(*finished_);
    constexpr Duration kLookClosely = std::chrono::microseconds(200);
    static_cast<void>(device::await_event(*finished_, {check_, Duration::max(), kLookClosely}));
}

void CudaQueue::copy(void* into, const void* from, int64_t bytes) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(cudaMemcpyAsync(into, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                cuda_stream()));
}

// Copies to the device. FROM is memory that is not pinned, so CUDA has read it when the call
// returns, and the caller may change it.
void CudaQueue::copy_in(void* into, const void* from, int64_t bytes) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(cudaMemcpyAsync(into, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                                cuda_stream()));
}

void CudaQueue::copy_out(void* into, const void* from, int64_t bytes) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    // A wait inside a copy cannot be interrupted, so this first waits for all earlier work.
    finish();
    expect_work(cudaMemcpyAsync(into, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                                cuda_stream()));
    finish();
}

void CudaQueue::zero(void* into, int64_t bytes) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(cudaMemsetAsync(into, 0, static_cast<size_t>(bytes), cuda_stream()));
}

void CudaQueue::fill(float* into, float value, int64_t numel) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_fill(into, value, numel, cuda_stream()));
}

void CudaQueue::adam_step(const FlatRange& range, const kernels::AdamStep& step) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_adam(kernels::arrays_of(range, step), {range.begin, range.numel},
                                     kernels::constants_of(step), cuda_stream()));
}

void CudaQueue::adagrad_step(const FlatRange& range, const kernels::AdagradStep& step) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_adagrad(kernels::arrays_of(range, step), {range.begin, range.numel},
                                        kernels::constants_of(step), cuda_stream()));
}

void CudaQueue::lion_step(const FlatRange& range, const kernels::LionStep& step) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_lion(kernels::arrays_of(range, step), {range.begin, range.numel},
                                     kernels::constants_of(step), cuda_stream()));
}

void CudaQueue::sgd_step(const FlatRange& range, const kernels::SgdStep& step) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_sgd(kernels::arrays_of(range, step), {range.begin, range.numel},
                                    kernels::constants_of(step), cuda_stream()));
}

void CudaQueue::ordered_sum(std::span<const float* const> sources, float scale, float* out,
                            int64_t numel) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_sum(kernels::sources_of(sources), scale, /*adds=*/false, out, numel,
                                    cuda_stream()));
}

void CudaQueue::accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                               int64_t numel) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(kernels::launch_sum(kernels::sources_of(sources), scale, /*adds=*/true, into, numel,
                                    cuda_stream()));
}

void CudaQueue::to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    expect_work(
        kernels::launch_to_half(values, out, kernels::half_kind(dtype), numel, cuda_stream()));
}

// Copies the list to the device only if it changed: in all steps but the first, ARRAYS are the same
// as in the last call.
void CudaQueue::bring_list(std::span<const device::FloatArray> arrays) {
    const auto same = [](const kernels::GridValues& a, const device::FloatArray& b) {
        return a.data == b.data && a.numel == b.numel;
    };
    if (std::ranges::equal(squares_.of_host, arrays, same)) return;
    squares_.of_host.clear();
    for (const device::FloatArray& values : arrays)
        squares_.of_host.push_back({values.data, values.numel});
    const auto count = std::ssize(arrays);
    if (count > squares_.room) {
        const auto items = static_cast<size_t>(count);
        squares_.arrays = c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
            items * sizeof(kernels::GridValues), cuda_stream());
        squares_.sums = static_cast<double*>(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
            items * sizeof(double), cuda_stream()));
        squares_.room = count;
    }
    copy_in(squares_.arrays, squares_.of_host.data(),
            count * static_cast<int64_t>(sizeof(kernels::GridValues)));
}

std::vector<double> CudaQueue::sums_of_squares(std::span<const device::FloatArray> arrays) {
    std::vector<double> sums(arrays.size());
    if (arrays.empty()) return sums;
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    bring_list(arrays);
    expect_work(kernels::launch_squares(static_cast<const kernels::GridValues*>(squares_.arrays),
                                        std::ssize(arrays), squares_.sums, cuda_stream()));
    copy_out(sums.data(), squares_.sums, std::ssize(sums) * static_cast<int64_t>(sizeof(double)));
    return sums;
}

void CudaQueue::flag_nonfinite(std::span<const device::FloatArray> arrays, float* flags) {
    const c10::cuda::CUDAGuard guard(stream_.stream().device_index());
    for (size_t first = 0; first < arrays.size(); first += kernels::kFlagArraysMax) {
        kernels::GridFlags launch{};
        const size_t count = std::min<size_t>(arrays.size() - first, kernels::kFlagArraysMax);
        for (size_t i = 0; i < count; ++i)
            launch.arrays[i] = {arrays[first + i].data, arrays[first + i].numel};
        launch.flags = flags + first;
        expect_work(kernels::launch_flag_nonfinite(launch, static_cast<int>(count), cuda_stream()));
    }
}

}  // namespace dslaunch::runtime
