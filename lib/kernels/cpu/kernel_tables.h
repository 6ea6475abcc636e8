// The tables that each instruction set fills for updates, packings and signs: plain functions over
// raw pointers. Files that are compiled for one instruction set include nothing that defines inline
// functions with external linkage: otherwise the linker could keep a copy that was compiled for
// another processor.
#pragma once

#include <cstdint>

#include "kernels/element/update_arrays.h"

namespace dslaunch::kernels {

using ToHalf = void (*)(const float* values, uint16_t* out, int64_t numel);

// The functions of flat_optimizer.h, without its checks of the arguments.
struct FlatKernels {
    void (*adam)(const UpdateArrays&, ElementRange, const AdamConstants&);
    void (*adagrad)(const UpdateArrays&, ElementRange, const AdagradConstants&);
    void (*lion)(const UpdateArrays&, ElementRange, const LionConstants&);
    void (*sgd)(const UpdateArrays&, ElementRange, const SgdConstants&);
    void (*sum)(const Sources&, float scale, float* out, int64_t numel);
    void (*accumulate)(const Sources&, float scale, float* into, int64_t numel);
    // Sums 16-bit sources in fp32 and rounds the sum to their type.
    void (*sum_half)(const Sources&, uint16_t* out, int64_t numel);
    double (*block_squares)(const float* values, int64_t numel);
    ToHalf to_bf16;
    ToHalf to_fp16;
};

// The number of elements that share one scale; each element has a code.
inline constexpr int64_t kPackedBlock = 256;

// SCALES has one number per block. SEED: codes are rounded stochastically, by a hash of SEED and
// the element's number. If SEED is null, the nearest code is taken.
struct PackingKernels {
    void (*to_bf16)(const float* values, uint16_t* out, int64_t numel, uint32_t seed);
    void (*from_bf16)(const uint16_t* values, float* out, int64_t numel);
    void (*from_fp16)(const uint16_t* values, float* out, int64_t numel);
    void (*to_int8)(const float* values, float* scales, int8_t* codes, int64_t numel,
                    const uint32_t* seed);
    void (*from_int8)(const float* scales, const int8_t* codes, float* out, int64_t numel);
    // Byte i of a block of n elements in CODES has the codes of two elements: element i and element
    // i + (n + 1) / 2.
    void (*to_int4)(const float* values, float* scales, uint8_t* codes, int64_t numel,
                    const uint32_t* seed);
    void (*from_int4)(const float* scales, const uint8_t* codes, float* out, int64_t numel);
    void (*squares_to_uint8)(const float* values, float* scales, uint8_t* codes, int64_t numel,
                             uint32_t seed);
    void (*squares_from_uint8)(const float* scales, const uint8_t* codes, float* out,
                               int64_t numel);
    // The split functions write byte 0 of every element, then byte 1 of every element, and so on.
    // The join functions do the reverse.
    void (*split_4)(const uint32_t* values, uint8_t* planes, int64_t numel);
    void (*join_4)(const uint8_t* planes, uint32_t* values, int64_t numel);
    void (*split_2)(const uint16_t* values, uint8_t* planes, int64_t numel);
    void (*join_2)(const uint8_t* planes, uint16_t* values, int64_t numel);
};

// The functions of one_bit.h.
struct SignKernels {
    float (*compress)(const float* values, float factor, float* error, uint8_t* bits,
                      int64_t numel);
    void (*expand)(const uint8_t* bits, float scale, float* out, int64_t numel);
    void (*expand_add)(const uint8_t* bits, float scale, float* out, int64_t numel);
    void (*moves)(const LocalMoves&, float* out);
    void (*take_moves)(const LocalMoves&, const float* mean, float lrs);
    float (*fresh)(const FreshVariance&);
};

extern const FlatKernels kScalarFlat, kNeonFlat, kAvx2Flat, kAvx512Flat, kAvx512Bf16Flat;
extern const PackingKernels kScalarPacking, kNeonPacking, kAvx2Packing, kAvx512Packing;
extern const SignKernels kScalarSigns, kNeonSigns, kAvx2Signs, kAvx512Signs;

}  // namespace dslaunch::kernels
