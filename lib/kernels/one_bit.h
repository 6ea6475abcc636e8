// Operations of 1-bit Adam, 0/1 Adam and 1-bit LAMB on flat arrays, in addition to the updates in
// flat_optimizer.h. They compress values to one bit per element with error feedback, and average
// the parameter changes of hosts that have made several steps without each other. As in
// flat_optimizer.h, each operation has several implementations, and all give equal bits. Sources:
// Tang et al. 2021 (1-bit Adam, arXiv:2102.02888), Lu et al. 2022 (0/1 Adam, arXiv:2202.06009).
// Threads: the caller's.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/element/update_arrays.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// Returns the number of bytes for the signs of NUMEL elements. Element i is bit i % 8 of byte i /
// 8. A set bit means +, also for a value of 0; a clear bit means -, also for a NaN.
[[nodiscard]] constexpr int64_t sign_bytes(int64_t numel) {
    return (numel + 7) / 8;
}

// Compresses c[i] = values[i] * factor + error[i] to its signs and one scale. Returns the scale,
// which is the root mean square of c; the squares are summed in fp64. ERROR receives the
// compression error c[i] - scale * sign(c[i]). BITS has sign_bytes(numel) bytes; the bits after the
// last element are 0. REQUIRES: no overlap; numel > 0.
[[nodiscard]] float compress_signs(const float* values, float factor, std::span<float> error,
                                   uint8_t* bits, Isa isa = isa_in_use());

// Sets out[i] to scale if the bit of element i is set, and to -scale otherwise. If ADDS is true,
// adds this value to out[i] instead.
void expand_signs(const uint8_t* bits, float scale, bool adds, std::span<float> out,
                  Isa isa = isa_in_use());

// Sets out[i] = (parameters[i] - meeting[i]) * (sqrt(variance[i]) + eps): the move since the hosts'
// last meeting, in the units of a momentum.
void local_moves(const LocalMoves& moves, float* out, Isa isa = isa_in_use());
// Ends a meeting of the hosts, at which they average their moves. Sets parameters[i] and meeting[i]
// to `meeting[i] + mean[i] / (sqrt(variance[i]) + eps)`. Sets the momentum to the average move,
// `-mean[i] / lrs`, minus `decay * meeting[i] * (sqrt(variance[i]) + eps)`. The subtracted part
// comes from weight decay; if it stayed in the momentum, the next steps would repeat that decay.
// MEAN is the mean of local_moves() over hosts; LRS is the sum of the learning rates since the last
// meeting. REQUIRES: meeting is given; PARAMETERS may be null if another rank writes them; lrs > 0.
void take_moves(const LocalMoves& moves, const float* mean, float lrs, Isa isa = isa_in_use());

// Updates FRESH with the square of the gradient that turned BEFORE into MOMENTUM. Returns the
// largest (sqrt(variance) + eps) / (sqrt(fresh) + eps) over the elements whose variance is above 0,
// or 0 if there is no such element. Source: Li et al. 2021 (1-bit LAMB, arXiv:2104.06069),
// algorithm 2.
[[nodiscard]] float fresh_variance(const FreshVariance& arrays, Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
