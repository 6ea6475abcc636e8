// The table of one_bit.h's kernels that each instruction set fills; see flat_kernels.h for what
// these files may include.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

struct MoveArrays {
    int64_t numel;
    float* parameters;
    float* meeting;
    float* momentum;
    const float* variance;
    float eps;
    float decay;
};

struct FreshArrays {
    int64_t numel;
    const float* before;
    const float* momentum;
    const float* variance;
    float* fresh;
    float beta1;
    float beta1_rest_inverse;
    float beta2;
    float beta2_rest;
    float eps;
};

struct SignKernels {
    float (*compress)(const float* values, float factor, float* error, uint8_t* bits,
                      int64_t numel);
    void (*expand)(const uint8_t* bits, float scale, float* out, int64_t numel);
    void (*expand_add)(const uint8_t* bits, float scale, float* out, int64_t numel);
    void (*moves)(const MoveArrays&, float* out);
    void (*take_moves)(const MoveArrays&, const float* mean, float lrs);
    float (*fresh)(const FreshArrays&);
};

extern const SignKernels kScalarSigns;
extern const SignKernels kAvx2Signs;
extern const SignKernels kAvx512Signs;
extern const SignKernels kNeonSigns;

}  // namespace dslaunch::kernels
