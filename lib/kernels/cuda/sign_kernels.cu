// The launches of sign_kernels.h, of the bodies in grid_signs.h.
#include "kernels/cuda/sign_kernels.h"

#include "kernels/cuda/grid_signs.h"

namespace dslaunch::kernels {

namespace {

__device__ GridPlace place_in_row() {
    return {static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
            static_cast<int64_t>(gridDim.x) * blockDim.x};
}

// kNormArrays blocks of signs a block of threads, kNormLanes threads each.
__global__ void __launch_bounds__(kThreads)
    correct_kernel(const GridSigns* blocks, int count, float factor, float* scales) {
    __shared__ double lanes[kThreads];
    const int lane = static_cast<int>(threadIdx.x) % kNormLanes;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kNormArrays + threadIdx.x / kNormLanes;
    if (i < count) lanes[threadIdx.x] = lane_correct(blocks[i], factor, lane);
    __syncthreads();
    if (i < count && lane == 0)
        scales[i] = scale_of_squares(add_lanes(lanes + threadIdx.x), blocks[i].numel);
}

__global__ void __launch_bounds__(kThreads)
    take_signs_kernel(const GridSigns* blocks, const float* scales) {
    grid_take_signs(blocks[blockIdx.y], scales[blockIdx.y], place_in_row());
}

__global__ void __launch_bounds__(kThreads)
    give_signs_kernel(const GridSigned* blocks, const float* scales, bool adds) {
    grid_give_signs(blocks[blockIdx.y], scales[blockIdx.y], adds, place_in_row());
}

__global__ void __launch_bounds__(kThreads) moves_kernel(GridMoves moves, float* out) {
    grid_moves(moves, out, place_in_row());
}

__global__ void __launch_bounds__(kThreads)
    take_moves_kernel(GridMoves moves, const float* mean, float lrs) {
    grid_take_moves(moves, mean, lrs, place_in_row());
}

}  // namespace

cudaError_t launch_compress_signs(const GridSigns* blocks, int count, int64_t longest, float factor,
                                  float* scales, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const auto groups = static_cast<unsigned>((count + kNormArrays - 1) / kNormArrays);
    correct_kernel<<<groups, kThreads, 0, stream>>>(blocks, count, factor, scales);
    const int64_t bytes = (longest + kSignNumel - 1) / kSignNumel;
    const dim3 grid(static_cast<unsigned>(blocks_over(bytes)), static_cast<unsigned>(count));
    take_signs_kernel<<<grid, kThreads, 0, stream>>>(blocks, scales);
    return cudaGetLastError();
}

cudaError_t launch_expand_signs(const GridSigned* blocks, const float* scales, int count,
                                int64_t longest, bool adds, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const dim3 grid(static_cast<unsigned>(blocks_over(longest)), static_cast<unsigned>(count));
    give_signs_kernel<<<grid, kThreads, 0, stream>>>(blocks, scales, adds);
    return cudaGetLastError();
}

cudaError_t launch_local_moves(const GridMoves& moves, float* out, cudaStream_t stream) {
    if (moves.numel == 0) return cudaSuccess;
    moves_kernel<<<static_cast<unsigned>(blocks_over(moves.numel)), kThreads, 0, stream>>>(moves,
                                                                                           out);
    return cudaGetLastError();
}

cudaError_t launch_take_moves(const GridMoves& moves, const float* mean, float lrs,
                              cudaStream_t stream) {
    if (moves.numel == 0) return cudaSuccess;
    take_moves_kernel<<<static_cast<unsigned>(blocks_over(moves.numel)), kThreads, 0, stream>>>(
        moves, mean, lrs);
    return cudaGetLastError();
}

}  // namespace dslaunch::kernels
