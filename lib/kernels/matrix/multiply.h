// Products of activations with a matrix of weights: y[rows, out] = x[rows, in] · Wᵀ (+ bias). With
// few rows (generated tokens), the weights are read from memory once. With many rows (prompts), the
// product is computed in blocks that stay in the caches. Data path: x -> Activations -> multiply ->
// y.
//
// Row-major forms: sums of fp32 products (fused multiply-adds). kInt8 and kInt4: each row of x is
// rounded to int8 in the matrix's groups, with the group's largest magnitude / 127 as the scale,
// and each group is summed in integers. Compared with exact activations, this adds an error of at
// most scale / 2 per element, about 0.5 % of the root mean square of the result for normally
// distributed numbers. kNf4: fp32. A row of y depends only on that row of x and on the weights, not
// on the number of rows, the threads or the instruction set. The exception is kBf16 on
// MatrixIsa::kAmx: its tiles add in another order, and use x as the sum of two bf16 numbers, which
// loses 2^-17 of each number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/isa.h"
#include "kernels/matrix/packed_matrix.h"
#include "kernels/thread_team.h"

namespace dslaunch::kernels {

// Rows of x: [rows, in] fp32, row r at data + r * stride, in elements. REQUIRES: stride >= in.
struct ActivationRows {
    const float* data = nullptr;
    int64_t rows = 0;
    int64_t in = 0;
    int64_t stride = 0;
};

// Activations prepared for matrices of one form and group; several matrices can use them (q, k and
// v; gate and up). The object's memory grows when assign() needs more of it, and never shrinks.
// Threads: one at a time may call assign(); any number may read.
class Activations {
  public:
    // Prepares X for products on ISA with matrices like SHAPE. X must outlive the use of this
    // object. If weights are kInt8 or kInt4, or if ISA is kAmx and weights are kBf16, the team's
    // threads make converted copies of X. Then a row of X with a number that is not finite makes
    // its row of each product NaN.
    void assign(const ActivationRows& x, const MatrixShape& shape, ThreadTeam& team,
                MatrixIsa isa = matrix_isa_in_use());
    // Returns true if the assigned rows can be multiplied with matrices of SHAPE.
    [[nodiscard]] bool serves(const MatrixShape& shape) const;
    [[nodiscard]] const ActivationRows& rows() const { return x_; }
    [[nodiscard]] MatrixIsa isa() const { return isa_; }

    // For the kernels: the arrays of ProductPart (cpu/matrix_kernels.h).
    [[nodiscard]] const int8_t* codes() const { return codes_.data(); }
    [[nodiscard]] const float* scales() const { return scales_.data(); }
    [[nodiscard]] const int32_t* offsets() const { return offsets_.data(); }
    [[nodiscard]] const float* scaled_sums() const { return scaled_sums_.data(); }
    [[nodiscard]] const uint16_t* halves() const { return halves_.data(); }

  private:
    void round(ThreadTeam& team);
    void split(ThreadTeam& team);

    ActivationRows x_;
    MatrixIsa isa_ = MatrixIsa::kScalar;
    bool splits_ = false;
    int64_t group_ = 0;  // 0: the rows are not rounded
    int64_t groups_ = 0;
    std::vector<int8_t> codes_;
    std::vector<float> scales_;
    std::vector<int32_t> offsets_;
    std::vector<float> scaled_sums_;
    std::vector<uint16_t> halves_;
};

// A matrix, and where its product is written.
struct Product {
    PackedMatrix matrix;
    float* y = nullptr;           // [rows, out], row r at y + r * stride
    int64_t stride = 0;           // in elements; at least the matrix's out
    const float* bias = nullptr;  // [out], or none
    bool adds = false;            // true: adds to y, as to a residual; false: overwrites y
};

// Computes all products of one set of activations in one loop of the team. With many rows, a thread
// uses 1 MiB of its stack. REQUIRES: ACTIVATIONS serves every matrix; no y overlaps x, a bias or
// another y.
void multiply(std::span<const Product> products, const Activations& activations, ThreadTeam& team);

}  // namespace dslaunch::kernels
