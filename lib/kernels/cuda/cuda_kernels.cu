// One launch for each function of cuda_kernels.h. The code that a thread runs is in grid_kernels.h
// and grid_unpack.h.
#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/grid_kernels.h"
#include "kernels/cuda/grid_unpack.h"

namespace dslaunch::kernels {

namespace {

__device__ GridPlace place_in_grid() {
    return {static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<int64_t>(gridDim.x) * blockDim.x};
}

template <typename Rule>
__global__ void __launch_bounds__(kThreads) update_kernel(GridUpdate update, Rule rule) {
    grid_update(update, rule, place_in_grid());
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(GridSources sources, float scale, bool adds, float* out, int64_t numel) {
    grid_sum(sources, scale, adds, out, numel, place_in_grid());
}

__global__ void __launch_bounds__(kThreads)
    to_half_kernel(const float* values, uint16_t* out, bool bf16, int64_t numel) {
    grid_to_half(values, out, bf16, numel, place_in_grid());
}

__global__ void __launch_bounds__(kThreads) fill_kernel(float* into, float value, int64_t numel) {
    grid_fill(into, value, numel, place_in_grid());
}

// Each block sums kNormArrays arrays, with kNormLanes threads per array.
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const GridValues* arrays, int64_t count, double* sums) {
    __shared__ double lanes[kThreads];
    const int lane = static_cast<int>(threadIdx.x) % kNormLanes;
    const int64_t array = static_cast<int64_t>(blockIdx.x) * kNormArrays + threadIdx.x / kNormLanes;
    if (array < count) lanes[threadIdx.x] = lane_squares(arrays[array], lane);
    __syncthreads();
    if (array < count && lane == 0) sums[array] = add_lanes(lanes + threadIdx.x);
}

__global__ void __launch_bounds__(kThreads) flag_nonfinite_kernel(GridFlags flags) {
    grid_flag_nonfinite(flags, static_cast<int>(blockIdx.y), place_in_grid());
}

__global__ void __launch_bounds__(kThreads) unpack_kernel(GridPacked packed) {
    grid_unpack(packed, place_in_grid());
}

unsigned grid_of(int64_t numel) {
    return static_cast<unsigned>(blocks_over(numel));
}

bool fits(const Sources& sources) {
    return sources.kind == NumberKind::kFp32 && sources.source_count <= kSourcesMax;
}

template <typename Rule>
cudaError_t launch_update(const UpdateArrays& arrays, ElementRange range, const Rule& rule,
                          cudaStream_t stream) {
    if (!fits(arrays.gradients) || arrays.parameters == nullptr) return cudaErrorInvalidValue;
    if (range.numel == 0) return cudaSuccess;
    update_kernel<<<grid_of(range.numel), kThreads, 0, stream>>>(grid_arguments(arrays, range),
                                                                 rule);
    return cudaGetLastError();
}

}  // namespace

cudaError_t launch_adam(const UpdateArrays& arrays, ElementRange range,
                        const AdamConstants& constants, cudaStream_t stream) {
    switch (constants.form) {
        case AdamForm::kUsual:
            return launch_update(arrays, range, Adam{constants}, stream);
        case AdamForm::kFrozen:
            return launch_update(arrays, range, FrozenAdam{constants}, stream);
        case AdamForm::kLargest:
            return launch_update(arrays, range, AmsgradAdam{constants}, stream);
        case AdamForm::kEpsInside:
            return launch_update(arrays, range, EpsInsideAdam{constants}, stream);
    }
    return cudaErrorInvalidValue;
}

cudaError_t launch_adagrad(const UpdateArrays& arrays, ElementRange range,
                           const AdagradConstants& constants, cudaStream_t stream) {
    return launch_update(arrays, range, Adagrad{constants}, stream);
}

cudaError_t launch_lion(const UpdateArrays& arrays, ElementRange range,
                        const LionConstants& constants, cudaStream_t stream) {
    return launch_update(arrays, range, Lion{constants}, stream);
}

cudaError_t launch_sgd(const UpdateArrays& arrays, ElementRange range,
                       const SgdConstants& constants, cudaStream_t stream) {
    return launch_update(arrays, range, Sgd{constants}, stream);
}

cudaError_t launch_sum(const Sources& sources, float scale, bool adds, float* out, int64_t numel,
                       cudaStream_t stream) {
    if (!fits(sources)) return cudaErrorInvalidValue;
    if (numel == 0) return cudaSuccess;
    sum_kernel<<<grid_of(numel), kThreads, 0, stream>>>(grid_sources(sources), scale, adds, out,
                                                        numel);
    return cudaGetLastError();
}

cudaError_t launch_to_half(const float* values, uint16_t* out, NumberKind kind, int64_t numel,
                           cudaStream_t stream) {
    if (numel == 0) return cudaSuccess;
    to_half_kernel<<<grid_of(numel), kThreads, 0, stream>>>(values, out, kind == NumberKind::kBf16,
                                                            numel);
    return cudaGetLastError();
}

cudaError_t launch_fill(float* into, float value, int64_t numel, cudaStream_t stream) {
    if (numel == 0) return cudaSuccess;
    fill_kernel<<<grid_of(numel), kThreads, 0, stream>>>(into, value, numel);
    return cudaGetLastError();
}

cudaError_t launch_squares(const GridValues* arrays, int64_t count, double* sums,
                           cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((count + kNormArrays - 1) / kNormArrays);
    squares_kernel<<<blocks, kThreads, 0, stream>>>(arrays, count, sums);
    return cudaGetLastError();
}

cudaError_t launch_flag_nonfinite(const GridFlags& flags, int count, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    int64_t longest = 0;
    for (int i = 0; i < count; ++i)
        longest = flags.arrays[i].numel > longest ? flags.arrays[i].numel : longest;
    const dim3 grid(grid_of(longest == 0 ? 1 : longest), static_cast<unsigned>(count));
    flag_nonfinite_kernel<<<grid, kThreads, 0, stream>>>(flags);
    return cudaGetLastError();
}

cudaError_t launch_unpack(const GridPacked& packed, cudaStream_t stream) {
    if (packed.out == 0 || packed.in == 0) return cudaSuccess;
    unpack_kernel<<<static_cast<unsigned>(blocks_over(packed)), kThreads, 0, stream>>>(packed);
    return cudaGetLastError();
}

}  // namespace dslaunch::kernels
