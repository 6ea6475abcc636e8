#include "kernels/one_bit.h"

#include "base/check.h"
#include "kernels/cpu/sign_kernels.h"

namespace dslaunch::kernels {
namespace {

const SignKernels& sign_kernels_of(Isa isa) {
    DSL_CHECK(isa_available(isa), "this processor or build lacks {}", isa_name(isa));
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kAvx2Signs;
    if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) return kAvx512Signs;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return kNeonSigns;
#endif
    return kScalarSigns;
}

MoveArrays move_arrays(const LocalMoves& moves) {
    return {moves.numel,    moves.parameters, moves.meeting, moves.momentum,
            moves.variance, moves.eps,        moves.decay};
}

}  // namespace

float compress_signs(const float* values, float factor, std::span<float> error, uint8_t* bits,
                     Isa isa) {
    DSL_CHECK(!error.empty(), "nothing has no scale");
    return sign_kernels_of(isa).compress(values, factor, error.data(), bits, std::ssize(error));
}

void expand_signs(const uint8_t* bits, float scale, bool adds, std::span<float> out, Isa isa) {
    const SignKernels& kernels = sign_kernels_of(isa);
    (adds ? kernels.expand_add : kernels.expand)(bits, scale, out.data(), std::ssize(out));
}

void local_moves(const LocalMoves& moves, float* out, Isa isa) {
    sign_kernels_of(isa).moves(move_arrays(moves), out);
}

void take_moves(const LocalMoves& moves, const float* mean, float lrs, Isa isa) {
    DSL_CHECK(lrs > 0 && moves.meeting != nullptr, "moves of learning rates that sum to {}", lrs);
    sign_kernels_of(isa).take_moves(move_arrays(moves), mean, lrs);
}

float fresh_variance(const FreshVariance& arrays, Isa isa) {
    DSL_CHECK(arrays.beta1 < 1, "beta1 {}", arrays.beta1);
    return sign_kernels_of(isa).fresh(
        {arrays.numel, arrays.before, arrays.momentum, arrays.variance, arrays.fresh,
         static_cast<float>(arrays.beta1), static_cast<float>(1 / (1 - arrays.beta1)),
         static_cast<float>(arrays.beta2), static_cast<float>(1 - arrays.beta2), arrays.eps});
}

}  // namespace dslaunch::kernels
