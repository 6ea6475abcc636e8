#include "kernels/one_bit.h"

#include "base/check.h"
#include "kernels/tables.h"

namespace dslaunch::kernels {

float compress_signs(const float* values, float factor, std::span<float> error, uint8_t* bits,
                     Isa isa) {
    DSL_CHECK(!error.empty(), "cannot compute the scale of an empty range");
    return kernels_of(isa).signs.compress(values, factor, error.data(), bits, std::ssize(error));
}

void expand_signs(const uint8_t* bits, float scale, bool adds, std::span<float> out, Isa isa) {
    const SignKernels& kernels = kernels_of(isa).signs;
    (adds ? kernels.expand_add : kernels.expand)(bits, scale, out.data(), std::ssize(out));
}

void local_moves(const LocalMoves& moves, float* out, Isa isa) {
    kernels_of(isa).signs.moves(moves, out);
}

void take_moves(const LocalMoves& moves, const float* mean, float lrs, Isa isa) {
    DSL_CHECK(lrs > 0 && moves.meeting != nullptr,
              "moves need a buffer, and the sum of the learning rates must be positive, not {}",
              lrs);
    kernels_of(isa).signs.take_moves(moves, mean, lrs);
}

float fresh_variance(const FreshVariance& arrays, Isa isa) {
    DSL_CHECK(arrays.beta1 < 1, "beta1 {}", arrays.beta1);
    return kernels_of(isa).signs.fresh(arrays);
}

}  // namespace dslaunch::kernels
