// The kernels of flat_optimizer.h on a GPU, and packed weights written out: each function puts one
// launch on STREAM and returns the launch's result; errors of the work itself come to light later.
// Data path: the plugin's queue and operators -> [here] -> grid_kernels.h, grid_unpack.h. All
// pointers are of the device's memory; arrays aligned to 16 bytes move four elements at once.
// Threads: any.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/grid_arguments.h"
#include "kernels/element/update_arrays.h"

namespace dslaunch::kernels {

// REQUIRES: the update writes parameters, its gradients are fp32 and of at most 8 arrays, and RANGE
// begins at a multiple of 4 elements.
cudaError_t launch_adam(const UpdateArrays& arrays, ElementRange range,
                        const AdamConstants& constants, cudaStream_t stream);
cudaError_t launch_adagrad(const UpdateArrays& arrays, ElementRange range,
                           const AdagradConstants& constants, cudaStream_t stream);
cudaError_t launch_lion(const UpdateArrays& arrays, ElementRange range,
                        const LionConstants& constants, cudaStream_t stream);
cudaError_t launch_sgd(const UpdateArrays& arrays, ElementRange range,
                       const SgdConstants& constants, cudaStream_t stream);

// ADDS: to the numbers in OUT. REQUIRES: at most 8 sources.
cudaError_t launch_sum(const Sources& sources, float scale, bool adds, float* out, int64_t numel,
                       cudaStream_t stream);
cudaError_t launch_to_half(const float* values, uint16_t* out, NumberKind kind, int64_t numel,
                           cudaStream_t stream);
cudaError_t launch_fill(float* into, float value, int64_t numel, cudaStream_t stream);

// Sets SUMS[i] to the sum of squares of ARRAYS[i]; both lie in the device's memory.
cudaError_t launch_squares(const GridValues* arrays, int64_t count, double* sums,
                           cudaStream_t stream);
// Looks at the first COUNT arrays of FLAGS, which is of the host's memory and is passed by value.
cudaError_t launch_flag_nonfinite(const GridFlags& flags, int count, cudaStream_t stream);

cudaError_t launch_unpack(const GridPacked& packed, cudaStream_t stream);

}  // namespace dslaunch::kernels
