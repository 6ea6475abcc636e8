// The kernels of flat_optimizer.h on a GPU, and the unpacking of packed weights. Each function
// makes one launch on STREAM and returns the result of the launch; errors of the kernel itself are
// reported later. Data path: the plugin's queue and operators -> [here] -> grid_kernels.h,
// grid_unpack.h. All arrays are in device memory; arrays aligned to 16 bytes are accessed four
// elements at once. Threads: any.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/grid_arguments.h"
#include "kernels/element/update_arrays.h"

namespace dslaunch::kernels {

// REQUIRES: the update writes parameters; its gradients are at most 8 fp32 arrays; RANGE begins at
// a multiple of 4 elements.
cudaError_t launch_adam(const UpdateArrays& arrays, ElementRange range,
                        const AdamConstants& constants, cudaStream_t stream);
cudaError_t launch_adagrad(const UpdateArrays& arrays, ElementRange range,
                           const AdagradConstants& constants, cudaStream_t stream);
cudaError_t launch_lion(const UpdateArrays& arrays, ElementRange range,
                        const LionConstants& constants, cudaStream_t stream);
cudaError_t launch_sgd(const UpdateArrays& arrays, ElementRange range,
                       const SgdConstants& constants, cudaStream_t stream);

// Sets OUT to the sum of SOURCES times SCALE. If ADDS is true, adds this sum to the numbers in OUT
// instead. REQUIRES: at most 8 sources.
cudaError_t launch_sum(const Sources& sources, float scale, bool adds, float* out, int64_t numel,
                       cudaStream_t stream);
cudaError_t launch_to_half(const float* values, uint16_t* out, NumberKind kind, int64_t numel,
                           cudaStream_t stream);
cudaError_t launch_fill(float* into, float value, int64_t numel, cudaStream_t stream);

// Sets SUMS[i] to the sum of squares of ARRAYS[i]. ARRAYS and SUMS are in device memory.
cudaError_t launch_squares(const GridValues* arrays, int64_t count, double* sums,
                           cudaStream_t stream);
// Checks the first COUNT arrays of FLAGS for numbers that are not finite. FLAGS itself is in host
// memory and is passed by value.
cudaError_t launch_flag_nonfinite(const GridFlags& flags, int count, cudaStream_t stream);

// Unpacks weights as PACKED describes it.
cudaError_t launch_unpack(const GridPacked& packed, cudaStream_t stream);

}  // namespace dslaunch::kernels
