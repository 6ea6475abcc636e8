// The second moment of matrices, kept as row factors and column factors, and the update direction
// computed from these factors. Sums are taken in fp64 in one fixed order, so every processor gets
// the same bits. Source: Shazeer & Stern 2018 (Adafactor, arXiv:1804.04235), algorithms 4 and 5, as
// implemented in transformers. Threads: the caller's.
#pragma once

#include <cstdint>
#include <span>

namespace dslaunch::kernels {

// MATRICES matrices of ROWS x COLUMNS elements, stored one after the other, row by row.
struct FactoredShape {
    int64_t matrices = 1;
    int64_t rows = 0;
    int64_t columns = 0;
};

// The constants of one step of a second moment: moment = keep * moment + (1 - keep) * ((gradient *
// scale)^2 + eps).
struct SquareStep {
    double keep = 0;
    double eps = 1e-30;
    float scale = 1;
};

// Updates ROW, [matrices, rows], and COLUMN, [matrices, columns], with the mean squares over the
// other dimension. REQUIRES: no dimension is 0.
void move_factors(const float* gradients, const FactoredShape& shape, const SquareStep& step,
                  std::span<float> row, std::span<float> column);
// Sets out = gradients * scale / sqrt(row / mean(row) * column), with the mean taken over each
// matrix. REQUIRES: no overlap.
void factored_direction(const float* gradients, const FactoredShape& shape, float scale,
                        std::span<const float> row, std::span<const float> column, float* out);
// Computes the update direction of an array without rows, such as a bias: updates the second moment
// VARIANCE, [numel], and sets out = gradients * scale / sqrt(variance).
void whole_direction(const float* gradients, const SquareStep& step, std::span<float> variance,
                     float* out);

}  // namespace dslaunch::kernels
