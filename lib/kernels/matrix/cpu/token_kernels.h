// The table of per-token kernels that each instruction set fills; see kernels/cpu/flat_kernels.h
// for what these files may include. Sizes are checked by the callers.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

struct NormArrays {
    const float* weight;  // or none
    const float* bias;    // or none
    float epsilon;
    bool one_plus;
};

struct RotationArrays {
    const float* cos;
    const float* sin;
    int64_t pairs;
};

// One query, and what it has gathered: [width] the weighted sum of values, then the largest score,
// then the sum of the weights.
struct AttendQuery {
    const float* q;
    float* gathered;
    int64_t begin, length;  // the positions that it sees
};

// Positions [first, last) of a cache for queries that share a head of it.
struct AttendPart {
    const AttendQuery* queries;
    int64_t query_count;
    const void* const* key_pages;
    const void* const* value_pages;
    int64_t page_positions;
    int64_t position_stride;  // elements
    int64_t head_offset;      // elements
    int64_t width;
    int64_t first, last;
    float scale, softcap;
};

// Positions that are looked at together; the grid of them begins at position 0 for all queries.
inline constexpr int64_t kAttendBlock = 32;

struct TokenKernels {
    void (*rms_norm)(const float* x, int64_t width, const NormArrays&, float* out);
    void (*layer_norm)(const float* x, int64_t width, const NormArrays&, float* out);
    void (*rotate_halves)(float* head, const RotationArrays&);
    void (*rotate_pairs)(float* head, const RotationArrays&);
    void (*gate[6])(const float* gate, const float* up, float* out, int64_t width);  // by Gate
    void (*softmax)(const float* x, int64_t width, float softcap, float* out);
    void (*add)(const float* a, const float* b, float* out, int64_t width);
    void (*attend[3])(const AttendPart&);  // fp32, bf16, fp16
    // out = what COUNT parts of one query gathered, STRIDE apart, as one softmax.
    void (*merge)(const float* gathered, int64_t stride, int64_t count, int64_t width, float* out);
};

extern const TokenKernels kScalarToken;
extern const TokenKernels kAvx2Token;
extern const TokenKernels kAvx512Token;

}  // namespace dslaunch::kernels
