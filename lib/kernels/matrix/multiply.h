// Products of activations with a matrix of weights: y[rows, out] = x[rows, in] · Wᵀ (+ bias). Few
// rows (generated tokens) read the weights from memory once; many rows (prompts) go by blocks that
// stay in the caches. Data path: x -> Activations -> multiply -> y.
//
// Row-major forms: sums of fp32 products (fused multiply-adds). kInt8 and kInt4: each row of x is
// rounded to int8 in the matrix's groups, its scale the group's largest magnitude / 127, and groups
// are summed as integers: against exact activations that adds an error of at most scale / 2 for
// each element, about 0.5 % of the result's root mean square for normal numbers. kNf4: fp32.
// A row of y depends on that row of x and on the weights alone: not on the number of rows, the
// threads or the instruction set, but for kBf16 on MatrixIsa::kAmx. Its tiles add in another order,
// and take x as the sum of two bf16 numbers, which leaves 2^-17 of each number out.
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

// Activations made ready for matrices of one form and group, to be used by several of them (q, k
// and v; gate and up). Its memory grows to the largest use and is kept. Threads: assign by one at a
// time; reading by any number.
class Activations {
  public:
    // X must outlive the use. kInt8, kInt4, and kBf16 on kAmx: copies, on the team's threads; a row
    // with a number that is not finite gives rows of y that are NaN. ISA is the products' too.
    void assign(const ActivationRows& x, const MatrixShape& shape, ThreadTeam& team,
                MatrixIsa isa = matrix_isa_in_use());
    // Returns true when the assigned rows serve matrices of SHAPE.
    [[nodiscard]] bool serves(const MatrixShape& shape) const;
    [[nodiscard]] const ActivationRows& rows() const { return x_; }
    [[nodiscard]] MatrixIsa isa() const { return isa_; }

    // For the kernels: the arrays of MatrixPart (cpu/matrix_kernels.h).
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
    int64_t group_ = 0;  // 0: the rows as they are
    int64_t groups_ = 0;
    std::vector<int8_t> codes_;
    std::vector<float> scales_;
    std::vector<int32_t> offsets_;
    std::vector<float> scaled_sums_;
    std::vector<uint16_t> halves_;
};

// One matrix and the place of its product.
struct Product {
    PackedMatrix matrix;
    float* y = nullptr;           // [rows, out], row r at y + r * stride
    int64_t stride = 0;           // in elements; at least the matrix's out
    const float* bias = nullptr;  // [out], or none
    bool adds = false;            // to the numbers in y, as a residual; else y is overwritten
};

// Computes all products of one set of activations as one loop of the team. Many rows take 1 MiB of
// a thread's stack. REQUIRES: ACTIVATIONS serves every matrix; no y overlaps x, a bias or a y.
void multiply(std::span<const Product> products, const Activations& activations, ThreadTeam& team);

}  // namespace dslaunch::kernels
