// The kernels of one_bit.h on a GPU: each function puts its launches on STREAM and returns. No
// queue calls them yet: GPUs refuse optimizers that compress (config/run/gpu_faults.cpp). All
// pointers, the lists of blocks included, are of the device's memory. Threads: any. The result is
// that of the launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/grid_arguments.h"

namespace dslaunch::kernels {

// SCALES[i] gets the scale of BLOCKS[i]. LONGEST: the most elements of a block.
cudaError_t launch_compress_signs(const GridSigns* blocks, int count, int64_t longest, float factor,
                                  float* scales, cudaStream_t stream);
cudaError_t launch_expand_signs(const GridSigned* blocks, const float* scales, int count,
                                int64_t longest, bool adds, cudaStream_t stream);
cudaError_t launch_local_moves(const GridMoves& moves, float* out, cudaStream_t stream);
cudaError_t launch_take_moves(const GridMoves& moves, const float* mean, float lrs,
                              cudaStream_t stream);

}  // namespace dslaunch::kernels
