#include "kernels/matrix/token_kernels.h"

#include "base/check.h"
#include "kernels/matrix/matrix_tables.h"

namespace dslaunch::kernels {

void rms_norm(const float* x, int64_t width, const RmsNorm& norm, float* out, MatrixIsa isa) {
    token_kernels_of(isa).rms_norm(x, width, {norm.weight, nullptr, norm.epsilon, norm.one_plus},
                                   out);
}

void layer_norm(const float* x, int64_t width, const LayerNorm& norm, float* out, MatrixIsa isa) {
    token_kernels_of(isa).layer_norm(x, width, {norm.weight, norm.bias, norm.epsilon, false}, out);
}

void rotate(float* heads, const RotatedHeads& shape, const Rotation& rotation, MatrixIsa isa) {
    DSL_CHECK(rotation.pairs >= 0 && 2 * rotation.pairs <= shape.width,
              "{} pairs of a head of {} elements", rotation.pairs, shape.width);
    const TokenKernels& kernels = token_kernels_of(isa);
    const auto turn = rotation.interleaved ? kernels.rotate_pairs : kernels.rotate_halves;
    for (int64_t head = 0; head < shape.heads; ++head)
        turn(heads + head * shape.width, {rotation.cos, rotation.sin, rotation.pairs});
}

void gate(Gate act, const float* gate, const float* up, float* out, int64_t width, MatrixIsa isa) {
    token_kernels_of(isa).gate[static_cast<size_t>(act)](gate, up, out, width);
}

void softmax(const float* x, int64_t width, float softcap, float* out, MatrixIsa isa) {
    token_kernels_of(isa).softmax(x, width, softcap, out);
}

void add(const float* a, const float* b, float* out, int64_t width, MatrixIsa isa) {
    token_kernels_of(isa).add(a, b, out, width);
}

}  // namespace dslaunch::kernels
