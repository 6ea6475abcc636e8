// The second moment of matrices as a row and a column of factors, and the direction that it gives.
// Sums are taken in fp64 in one order, so every processor gets the same bits. Source: Shazeer &
// Stern 2018 (Adafactor, arXiv:1804.04235), algorithms 4 and 5, as transformers has them. Threads:
// the caller's.
#pragma once

#include <cstdint>
#include <span>

namespace dslaunch::kernels {

// MATRICES of ROWS x COLUMNS elements, one after the other, row by row.
struct FactoredShape {
    int64_t matrices = 1;
    int64_t rows = 0;
    int64_t columns = 0;
};

// The step of a second moment: keep * moment + (1 - keep) * ((gradient * scale)^2 + eps).
struct SquareStep {
    double keep = 0;
    double eps = 1e-30;
    float scale = 1;
};

// Moves ROW, [matrices, rows], and COLUMN, [matrices, columns], by the means of squares over the
// other dimension. REQUIRES: nothing is empty.
void move_factors(const float* gradients, const FactoredShape& shape, const SquareStep& step,
                  std::span<float> row, std::span<float> column);
// out = gradients * scale / sqrt(row / mean of the matrix's row * column). REQUIRES: no overlap.
void factored_direction(const float* gradients, const FactoredShape& shape, float scale,
                        std::span<const float> row, std::span<const float> column, float* out);
// Does the same for an array without rows: moves VARIANCE, [numel], and sets out = gradients *
// scale / sqrt(variance).
void whole_direction(const float* gradients, const SquareStep& step, std::span<float> variance,
                     float* out);

}  // namespace dslaunch::kernels
