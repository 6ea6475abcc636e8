// The table that each instruction set fills: plain functions over raw pointers with constants
// already in fp32. These files include nothing that defines inline functions with linkage: the
// linker could otherwise keep a copy that was compiled for another processor.
#pragma once

#include <cstdint>

#include "kernels/element/update_arrays.h"

namespace dslaunch::kernels {

using ToHalf = void (*)(const float* values, uint16_t* out, int64_t numel);

struct FlatKernels {
    void (*adam)(const UpdateArrays&, Range, const AdamConstants&);
    void (*adagrad)(const UpdateArrays&, Range, const AdagradConstants&);
    void (*lion)(const UpdateArrays&, Range, const LionConstants&);
    void (*sgd)(const UpdateArrays&, Range, const SgdConstants&);
    void (*sum)(const Sources&, float scale, float* out, int64_t numel);
    void (*accumulate)(const Sources&, float scale, float* into, int64_t numel);
    // 16-bit sources, summed in fp32, to their own type.
    void (*sum_half)(const Sources&, uint16_t* out, int64_t numel);
    double (*block_squares)(const float* values, int64_t numel);
    ToHalf to_bf16;
    ToHalf to_fp16;
};

extern const FlatKernels kScalarKernels;
extern const FlatKernels kAvx2Kernels;
extern const FlatKernels kAvx512Kernels;
extern const FlatKernels kAvx512Bf16Kernels;
extern const FlatKernels kNeonKernels;

}  // namespace dslaunch::kernels
