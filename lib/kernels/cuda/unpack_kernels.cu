#include "kernels/cuda/unpack_kernels.h"

#include "kernels/cuda/grid_unpack.h"

namespace dslaunch::kernels {

namespace {

__global__ void __launch_bounds__(kThreads) unpack_kernel(GridPacked packed) {
    grid_unpack(packed, {static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                         static_cast<int64_t>(gridDim.x) * blockDim.x});
}

}  // namespace

cudaError_t launch_unpack(const GridPacked& packed, cudaStream_t stream) {
    if (packed.out == 0 || packed.in == 0) return cudaSuccess;
    unpack_kernel<<<static_cast<unsigned>(blocks_over(packed)), kThreads, 0, stream>>>(packed);
    return cudaGetLastError();
}

}  // namespace dslaunch::kernels
