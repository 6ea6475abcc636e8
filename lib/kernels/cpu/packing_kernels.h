// The table of packing kernels that each instruction set fills; see flat_kernels.h for what these
// files may include.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

// A block of so many elements has one scale, then a byte for each element.
inline constexpr int64_t kPackedBlock = 256;

struct PackingKernels {
    // VALUES to bf16, a carry drawn by SEED and the element's number.
    void (*to_bf16)(const float* values, uint16_t* out, int64_t numel, uint32_t seed);
    void (*from_bf16)(const uint16_t* values, float* out, int64_t numel);
    // Blocks of kPackedBlock: SCALES has one for each, CODES one for each element.
    void (*to_int8)(const float* values, float* scales, int8_t* codes, int64_t numel,
                    uint32_t seed);
    void (*from_int8)(const float* scales, const int8_t* codes, float* out, int64_t numel);
    void (*squares_to_uint8)(const float* values, float* scales, uint8_t* codes, int64_t numel,
                             uint32_t seed);
    void (*squares_from_uint8)(const float* scales, const uint8_t* codes, float* out,
                               int64_t numel);
    // The same block for what travels between hosts, rounded to the nearest code. Of 4 bits, CODES
    // has a byte for each pair: element i of a block of n, and element i + (n + 1) / 2.
    void (*to_nearest_int8)(const float* values, float* scales, int8_t* codes, int64_t numel);
    void (*to_nearest_int4)(const float* values, float* scales, uint8_t* codes, int64_t numel);
    void (*to_drawn_int4)(const float* values, float* scales, uint8_t* codes, int64_t numel,
                          uint32_t seed);
    void (*from_int4)(const float* scales, const uint8_t* codes, float* out, int64_t numel);
    void (*from_fp16)(const uint16_t* values, float* out, int64_t numel);
    // Byte k of every element, one after the other, for all k; and back.
    void (*split_4)(const uint32_t* values, uint8_t* planes, int64_t numel);
    void (*join_4)(const uint8_t* planes, uint32_t* values, int64_t numel);
    void (*split_2)(const uint16_t* values, uint8_t* planes, int64_t numel);
    void (*join_2)(const uint8_t* planes, uint16_t* values, int64_t numel);
};

extern const PackingKernels kScalarPacking;
extern const PackingKernels kAvx2Packing;
extern const PackingKernels kAvx512Packing;
extern const PackingKernels kNeonPacking;

}  // namespace dslaunch::kernels
