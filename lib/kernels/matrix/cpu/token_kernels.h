// A decoder's work on one token between its products: norms, rotary positions, activations and
// softmax, and parts of attention (attend.h), as a table that each instruction set fills
// (token_kernels_of in matrix_tables.h). fp32 in and out, one row a call, on the calling thread;
// equal bits on all instruction sets. Unless said, OUT may be the input itself and otherwise
// overlaps nothing. Source of exp and erf: Cephes (Moshier 1989). Errors of silu and softmax's
// weights are below 5 units of the last place; gelu's below 2e-5 of the value (far below 0), else 5
// units. kernels/cpu/kernel_tables.h says what this file may include.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

struct Norm {
    const float* weight = nullptr;  // [width], or none: 1
    const float* bias = nullptr;    // [width], or none: 0; of layer_norm alone
    float epsilon = 1e-6F;
    bool one_plus = false;  // rms_norm's factor is 1 + weight (Gemma)
};

// The rotary position of a token, for each of `heads` heads. The first 2 · pairs elements of a head
// turn in pairs x and y: x cos - y sin, y cos + x sin; the others stay. REQUIRES: 2 · pairs <=
// width.
struct Rotation {
    int64_t heads = 0;
    int64_t width = 0;           // of a head
    const float* cos = nullptr;  // [pairs]
    const float* sin = nullptr;  // [pairs]
    int64_t pairs = 0;
};

enum class Gate : uint8_t { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kReluSquared };

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
    // out = x / sqrt(mean(x²) + epsilon) * weight. [width]
    void (*rms_norm)(const float* x, int64_t width, const Norm&, float* out);
    // out = (x - mean) / sqrt(variance + epsilon) * weight + bias. [width]
    void (*layer_norm)(const float* x, int64_t width, const Norm&, float* out);
    // In place, [heads, width]: element i turns with element i + pairs, or, as GPT-J has it,
    // element 2i with element 2i + 1.
    void (*rotate_halves)(float* heads, const Rotation&);
    void (*rotate_pairs)(float* heads, const Rotation&);
    // One a Gate: out = act(gate) * up; a null UP: act(gate). kGelu is the exact one (erf),
    // kQuickGelu is x · sigmoid(1.702 x). [width]
    void (*gate[6])(const float* gate, const float* up, float* out, int64_t width);
    // out = exp(x - max) / Σ. A row that is -infinity whole becomes NaN, as torch's. [width]
    void (*softmax)(const float* x, int64_t width, float* out);
    // out = a + b. [width]
    void (*add)(const float* a, const float* b, float* out, int64_t width);
    // For attend() alone: positions of a cache in fp32, bf16 or fp16.
    void (*attend[3])(const AttendPart&);
    // out = what COUNT parts of one query gathered, STRIDE apart, as one softmax.
    void (*merge)(const float* gathered, int64_t stride, int64_t count, int64_t width, float* out);
};

extern const TokenKernels kScalarToken;
extern const TokenKernels kAvx2Token;
extern const TokenKernels kAvx512Token;

}  // namespace dslaunch::kernels
