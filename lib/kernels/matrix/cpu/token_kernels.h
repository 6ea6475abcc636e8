// A decoder's work on one token between the matrix products: norms, rotary positions, activations,
// softmax, and parts of attention (attend.h). It is a table that each instruction set fills
// (token_kernels_of in matrix_tables.h). Input and output are fp32. Each call processes one row on
// the calling thread. All instruction sets give equal bits. Unless a comment says otherwise, OUT
// may be the input itself and overlaps nothing else. Source of exp and erf: Cephes (Moshier 1989).
// The errors of silu, gelu and softmax's weights are below 5 units in the last place. Only far
// below 0, gelu's error may be larger: up to 2e-5 of the value. kernels/cpu/kernel_tables.h says
// what this file may include.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

// The parameters of a norm over one row.
struct Norm {
    const float* weight = nullptr;  // [width]; null: 1
    const float* bias = nullptr;    // [width]; null: 0; used by layer_norm only
    float epsilon = 1e-6F;
    bool one_plus = false;  // rms_norm's factor is 1 + weight (Gemma)
};

// The rotary position of a token, for each of `heads` heads. The first 2 · pairs elements of a head
// are rotated in pairs x and y: x cos - y sin, y cos + x sin; the others stay unchanged. REQUIRES:
// 2 · pairs <= width.
struct Rotation {
    int64_t heads = 0;
    int64_t width = 0;           // elements in a head
    const float* cos = nullptr;  // [pairs]
    const float* sin = nullptr;  // [pairs]
    int64_t pairs = 0;
};

// The functions that an MLP applies to its gate.
enum class Gate : uint8_t { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kReluSquared };

// One query. `gathered` holds its sums so far: first the weighted sum of values, [width], then the
// largest score, then the sum of the weights.
struct AttendQuery {
    const float* q;
    float* gathered;
    int64_t begin, length;  // the query attends to positions [begin, length)
};

// Positions [first, last) of a cache, for queries that share one of its heads.
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

// The number of positions in a block, which is processed at once. For all queries, blocks are
// counted from position 0.
inline constexpr int64_t kAttendBlock = 32;

// The kernels of one instruction set.
struct TokenKernels {
    // out = x / sqrt(mean(x²) + epsilon) * weight. [width]
    void (*rms_norm)(const float* x, int64_t width, const Norm&, float* out);
    // out = (x - mean) / sqrt(variance + epsilon) * weight + bias. [width]
    void (*layer_norm)(const float* x, int64_t width, const Norm&, float* out);
    // In place, [heads, width]: rotate_halves pairs element i with element i + pairs; rotate_pairs,
    // as GPT-J does, pairs element 2i with element 2i + 1.
    void (*rotate_halves)(float* heads, const Rotation&);
    void (*rotate_pairs)(float* heads, const Rotation&);
    // One function for each Gate: out = act(gate) * up, or act(gate) if UP is null. kGelu is the
    // exact one (erf), kQuickGelu is x · sigmoid(1.702 x). [width]
    void (*gate[6])(const float* gate, const float* up, float* out, int64_t width);
    // out = exp(x - max) / Σ. If all numbers of a row are -infinity, the row becomes NaN, as in
    // torch. [width]
    void (*softmax)(const float* x, int64_t width, float* out);
    // out = a + b. [width]
    void (*add)(const float* a, const float* b, float* out, int64_t width);
    // Used by attend() only: one function each for a cache in fp32, bf16 and fp16.
    void (*attend[3])(const AttendPart&);
    // Merges the softmax sums of one query over COUNT parts of the cache, and writes the result to
    // OUT. The sums of successive parts are STRIDE elements apart in GATHERED.
    void (*merge)(const float* gathered, int64_t stride, int64_t count, int64_t width, float* out);
};

extern const TokenKernels kScalarToken;
extern const TokenKernels kNeonToken;
extern const TokenKernels kAvx2Token;
extern const TokenKernels kAvx512Token;

}  // namespace dslaunch::kernels
