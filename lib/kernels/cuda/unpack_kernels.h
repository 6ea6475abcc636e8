// Packed weights written out on a GPU. Data path: graph/packed's operator -> the plugin -> [here]
// -> grid_unpack.h. Threads: any. The result is that of the launch; errors of the work itself come
// to light later.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/grid_arguments.h"

namespace dslaunch::kernels {

cudaError_t launch_unpack(const GridPacked& packed, cudaStream_t stream);

}  // namespace dslaunch::kernels
