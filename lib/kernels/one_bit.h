// Operations of 1-bit Adam, 0/1 Adam and 1-bit LAMB on flat arrays beside updates
// (flat_optimizer.h): values in one bit an element with error feedback, and the moves of hosts that
// step on their own for a while. Implementations as in flat_optimizer.h, all with equal bits.
// Sources: Tang et al. 2021 (1-bit Adam, arXiv:2102.02888), Lu et al. 2022 (0/1 Adam,
// arXiv:2202.06009). Threads: the caller's.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/element/update_arrays.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// Returns the bytes for the signs of NUMEL elements: element i is bit i % 8 of byte i / 8. A set
// bit stands for +, also for a 0, and a bit that is not set for - (and for a NaN).
[[nodiscard]] constexpr int64_t sign_bytes(int64_t numel) {
    return (numel + 7) / 8;
}

// Compresses c[i] = values[i] * factor + error[i] to its signs and one scale. Returns the scale,
// the root of the mean of the squares. ERROR keeps what is lost: c[i] - scale * sign(c[i]). BITS
// has sign_bytes(numel) bytes; bits after the last element are 0. The sum of squares is taken in
// fp64. REQUIRES: no overlap; numel > 0.
[[nodiscard]] float compress_signs(const float* values, float factor, std::span<float> error,
                                   uint8_t* bits, Isa isa = isa_in_use());

// out[i] = scale where the bit is set, else -scale; ADDS: that is added to what OUT holds.
void expand_signs(const uint8_t* bits, float scale, bool adds, std::span<float> out,
                  Isa isa = isa_in_use());

// out[i] = (parameters[i] - meeting[i]) * (sqrt(variance[i]) + eps): the move since the last
// meeting, in the units of a momentum.
void local_moves(const LocalMoves& moves, float* out, Isa isa = isa_in_use());
// Sets the parameters and the next meeting to meeting[i] + mean[i] / (sqrt(variance[i]) + eps), and
// the momentum to the average move of all hosts, -mean[i] / lrs. The momentum leaves out weight
// decay's part, decay * meeting[i] * (sqrt(variance[i]) + eps): the next steps would decay by it
// again. MEAN: the mean of local_moves() over hosts; LRS: the sum of the learning rates since the
// last meeting. REQUIRES: parameters and meeting are given; PARAMETERS may be null if another rank
// writes them; lrs > 0.
void take_moves(const LocalMoves& moves, const float* mean, float lrs, Isa isa = isa_in_use());

// Moves FRESH by the square of the gradient that leads from BEFORE to MOMENTUM. Returns the largest
// (sqrt(variance) + eps) / (sqrt(fresh) + eps) of elements whose variance is above 0, or 0 if no
// variance is. Source: Li et al. 2021 (1-bit LAMB, arXiv:2104.06069), algorithm 2.
[[nodiscard]] float fresh_variance(const FreshVariance& arrays, Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
