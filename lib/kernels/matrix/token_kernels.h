// What a decoder does to one token between its products: norms, rotary positions, activations and
// softmax. fp32 in and out, one row a call, on the calling thread; equal bits on all instruction
// sets. Unless said, OUT may be the input itself and otherwise overlaps nothing. Source of exp and
// erf: Cephes (Moshier 1989). Errors of silu and softmax's weights are below 5 units of the last
// place; gelu's below 2e-5 of the value (far below 0), else 5 units. Threads: none of its own.
#pragma once

#include <cstdint>

#include "kernels/matrix/matrix_isa.h"

namespace dslaunch::kernels {

struct RmsNorm {
    const float* weight = nullptr;  // [width], or none: 1
    float epsilon = 1e-6F;
    bool one_plus = false;  // the factor is 1 + weight (Gemma)
};
// out = x / sqrt(mean(x²) + epsilon) * weight. [width]
void rms_norm(const float* x, int64_t width, const RmsNorm& norm, float* out,
              MatrixIsa isa = matrix_isa_in_use());

struct LayerNorm {
    const float* weight = nullptr;  // [width], or none: 1
    const float* bias = nullptr;    // [width], or none: 0
    float epsilon = 1e-5F;
};
// out = (x - mean) / sqrt(variance + epsilon) * weight + bias. [width]
void layer_norm(const float* x, int64_t width, const LayerNorm& norm, float* out,
                MatrixIsa isa = matrix_isa_in_use());

// The rotary position of a token. A head's first 2 · PAIRS elements turn, element i with element
// i + PAIRS: x[i] cos[i] - x[i + pairs] sin[i], x[i + pairs] cos[i] + x[i] sin[i]; the others stay.
struct Rotation {
    const float* cos = nullptr;  // [pairs]
    const float* sin = nullptr;  // [pairs]
    int64_t pairs = 0;
    bool interleaved = false;  // element 2i turns with element 2i + 1 instead (GPT-J)
};
struct RotatedHeads {
    int64_t heads = 0;
    int64_t width = 0;
};
// In place. HEADS: [shape.heads, shape.width]. REQUIRES: 2 · pairs <= width.
void rotate(float* heads, const RotatedHeads& shape, const Rotation& rotation,
            MatrixIsa isa = matrix_isa_in_use());

enum class Gate : uint8_t { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kReluSquared };
// out = act(gate) * up; UP may be none: act(gate). kGelu is the exact one (erf), kQuickGelu is
// x · sigmoid(1.702 x). [width]
void gate(Gate act, const float* gate, const float* up, float* out, int64_t width,
          MatrixIsa isa = matrix_isa_in_use());

// out = exp(x - max) / Σ, with x first softcap · tanh(x / softcap) where SOFTCAP is not 0. A row
// that is -infinity whole becomes NaN, as torch's. [width]
void softmax(const float* x, int64_t width, float softcap, float* out,
             MatrixIsa isa = matrix_isa_in_use());

// out = a + b. [width]
void add(const float* a, const float* b, float* out, int64_t width,
         MatrixIsa isa = matrix_isa_in_use());

}  // namespace dslaunch::kernels
