// The table that each instruction set fills: plain functions over raw pointers with constants
// already in fp32. These files include nothing that defines inline functions with linkage: the
// linker could otherwise keep a copy that was compiled for another processor.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

struct AdamConstants {
    float gradient_scale;
    float l2_decay;        // 0: none
    float parameter_keep;  // 1 - lr * decoupled decay
    float beta1_rest;      // 1 - beta1
    float beta2;
    float beta2_rest;  // 1 - beta2
    float correction2_sqrt;
    float eps;
    float step_size;  // lr / bias correction 1
};

struct SgdConstants {
    float gradient_scale;
    float decay;
    float momentum;
    float damping_rest;  // 1 - dampening
    float lr;
    bool nesterov;
    bool first_step;
};

struct Sources {
    const float* const* pointers;
    int64_t source_count;
};

using ToHalf = void (*)(const float* values, uint16_t* out, int64_t numel);
using FromHalf = void (*)(const uint16_t* values, float* out, int64_t numel);

// The 16-bit copy of the parameters that follows them.
enum class HalfKind : uint8_t { kNone, kBf16, kFp16 };
struct HalfCopy {
    uint16_t* out;  // null: none
    HalfKind kind;
};

struct AdamArrays {
    float* parameters;  // may be null
    const float* decay_parameters;
    float* momentum;
    float* variance;
    HalfCopy half;  // none when `parameters` is null
};

struct FlatKernels {
    void (*adam)(Sources, AdamArrays, int64_t numel, const AdamConstants&);
    void (*sgd)(Sources, AdamArrays, int64_t numel, const SgdConstants&);
    void (*sum)(Sources, float scale, float* out, int64_t numel);
    void (*accumulate)(Sources, float scale, float* into, int64_t numel);
    double (*block_squares)(const float* values, int64_t numel);
    ToHalf to_bf16;
    ToHalf to_fp16;
    FromHalf from_bf16;
    FromHalf from_fp16;
};

extern const FlatKernels kScalarKernels;
extern const FlatKernels kAvx2Kernels;
extern const FlatKernels kAvx512Kernels;
extern const FlatKernels kNeonKernels;

}  // namespace dslaunch::kernels
