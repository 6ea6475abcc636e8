// Values in few bits, and masks of the largest values, as DeepSpeed's compression defines them.
// compressed_layers.h applies them to weights and activations. Pure functions of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dslaunch::graph {

// A grid of 2^bits values. With 2 bits it has three values (-a, 0, a), and with 1 bit two values
// (-a, a).
struct Grid {
    int64_t bits = 8;
    int64_t groups = 1;        // equal parts of the elements, in row-major order, with a scale each
    bool is_symmetric = true;  // around 0; false: from the least to the largest value
    bool is_stochastic = false;  // rounds up or down by chance, without a bias
    uint64_t seed = 0;           // for is_stochastic
};

// Returns VALUES rounded to GRID, with the same shape and type. Computes in fp32. A group of equal
// values does not change, except that a grid of 2 bits may turn it into zeros. REQUIRES: VALUES are
// floats; GRID.groups divides their number; a grid of 1 or 2 bits is symmetric and not stochastic.
[[nodiscard]] at::Tensor on_grid(const at::Tensor& values, const Grid& grid);

// Rounds VALUES to a grid of 2^BITS values between the ends of RANGE, and returns the result.
// RANGE, [2] fp32, contains the least and the largest value of the grid. VALUES outside of RANGE
// become its ends. REQUIRES: BITS is at least 3.
[[nodiscard]] at::Tensor on_grid_of_range(const at::Tensor& values, const at::Tensor& range,
                                          int64_t bits, bool is_symmetric);

// Returns a mask like SCORES, of bools: true for the ceil(RATIO * numel) largest scores. Among
// equal scores, earlier scores count as larger.
[[nodiscard]] at::Tensor largest(const at::Tensor& scores, double ratio);

}  // namespace dslaunch::graph
