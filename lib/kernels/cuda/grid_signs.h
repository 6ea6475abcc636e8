// The kernels of one_bit.h for a grid of threads, as grid_kernels.h has those of flat_optimizer.h:
// functions that compile for GPUs and for processors, with the scalar kernels' bits. A list of
// blocks, each with one scale, is compressed by two launches: one adds the errors and sums the
// squares, the other takes the signs. Everything here has internal linkage.
//
// Bytes moved by compressing an element: 4 value, 8 + 8 error, 1 / 8 sign: 20.1; the second pass
// finds the errors of a bucket that fits the second-level cache there.
#pragma once

#include <cstdint>

#include "kernels/cuda/grid_kernels.h"
#include "kernels/element/sign_rules.h"

// NOLINTBEGIN(misc-definitions-in-headers): as in update_rules.h.
namespace dslaunch::kernels {
namespace {

inline constexpr int kSignNumel = 8;  // elements of a byte, which a thread takes at once

// Corrects elements LANE, LANE + kNormLanes, … of a block, and returns the sum of their squares;
// the lanes are added in order (add_lanes).
DSL_HOST_DEVICE inline double lane_correct(const GridSigns& block, float factor, int lane) {
    double sum = 0;
    for (int64_t i = lane; i < block.numel; i += kNormLanes) {
        const float value = corrected(block.values[i], factor, block.error[i]);
        block.error[i] = value;
        sum += static_cast<double>(value) * static_cast<double>(value);
    }
    return sum;
}

// Takes the signs of corrected values, and leaves what they do not tell.
DSL_HOST_DEVICE inline void grid_take_signs(const GridSigns& block, float scale,
                                            const GridPlace& place) {
    const int64_t bytes = (block.numel + kSignNumel - 1) / kSignNumel;
    for (int64_t byte = place.thread; byte < bytes; byte += place.threads) {
        unsigned bits = 0;
        for (int k = 0; k < kSignNumel; ++k) {
            const int64_t i = byte * kSignNumel + k;
            if (i >= block.numel) break;
            const bool positive = block.error[i] >= 0;
            block.error[i] -= signed_scale(positive, scale);
            bits |= (positive ? 1U : 0U) << k;
        }
        block.bits[byte] = static_cast<uint8_t>(bits);
    }
}

DSL_HOST_DEVICE inline void grid_give_signs(const GridSigned& block, float scale, bool adds,
                                            const GridPlace& place) {
    for (int64_t i = place.thread; i < block.numel; i += place.threads) {
        const bool positive = (block.bits[i / kSignNumel] >> (i % kSignNumel) & 1U) != 0;
        const float value = signed_scale(positive, scale);
        block.out[i] = adds ? block.out[i] + value : value;
    }
}

DSL_HOST_DEVICE inline void grid_moves(const GridMoves& moves, float* out, const GridPlace& place) {
    for (int64_t i = place.thread; i < moves.numel; i += place.threads)
        out[i] =
            (moves.parameters[i] - moves.meeting[i]) * denominator_of(moves.variance[i], moves.eps);
}

DSL_HOST_DEVICE inline void grid_take_moves(const GridMoves& moves, const float* mean, float lrs,
                                            const GridPlace& place) {
    for (int64_t i = place.thread; i < moves.numel; i += place.threads) {
        const Meeting met =
            meet(mean[i], moves.meeting[i], moves.variance[i], {moves.eps, moves.decay, lrs});
        moves.momentum[i] = met.momentum;
        moves.meeting[i] = met.parameter;
        if (moves.parameters != nullptr) moves.parameters[i] = met.parameter;
    }
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
