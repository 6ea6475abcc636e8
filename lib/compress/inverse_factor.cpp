#include "compress/inverse_factor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/matrix/multiply.h"

namespace dslaunch::compress {
namespace {

constexpr int64_t kFactorBlock = 64;  // columns that are factored together
constexpr int64_t kFactorRows = 32;

kernels::PackedMatrix matrix_on(const std::vector<float>& numbers, int64_t rows, int64_t columns) {
    return {kernels::matrix_shape(kernels::MatrixForm::kF32, rows, columns),
            reinterpret_cast<const std::byte*>(numbers.data())};
}

// The steps of inverse_factor() on a matrix [n, n], which is divided into blocks. The arithmetic
// within a block is fp64.
class BlockFactor {
  public:
    BlockFactor(int64_t n, kernels::ThreadTeam& team) : n_(n), team_(team) {}

    // Replaces the lower triangle of A by L with L L^T = A. Returns false if A is not positive
    // definite.
    bool cholesky(std::vector<float>& a) {
        for (int64_t begin = 0; begin < n_; begin += kFactorBlock) {
            const int64_t end = std::min(n_, begin + kFactorBlock), width = end - begin;
            if (begin > 0) subtract_earlier(a, begin, width);
            if (!factor_diagonal(a, begin, width)) return false;
            for_rows(end, n_, [&](int64_t row) {
                float* const x = a.data() + row * n_ + begin;
                for (int64_t c = 0; c < width; ++c) {
                    double sum = x[c];
                    const float* const line = a.data() + (begin + c) * n_ + begin;
                    for (int64_t k = 0; k < c; ++k) sum -= static_cast<double>(x[k]) * line[k];
                    x[c] = static_cast<float>(sum / line[c]);
                }
            });
        }
        return true;
    }

    // Returns the inverse of L, transposed; the result is upper triangular. L is the lower triangle
    // of A.
    std::vector<float> inverse_transposed(const std::vector<float>& a) {
        std::vector<float> made(a.size());
        for (int64_t begin = 0; begin < n_; begin += kFactorBlock) {
            const int64_t width = std::min(kFactorBlock, n_ - begin);
            if (begin > 0) {
                // Each number in row c of `sums_` is the dot product of row c of MADE with one row
                // of L in this block.
                copy_block(a, begin, width, begin, 1);
                sums_.resize(static_cast<size_t>(begin * width));
                multiply({made.data(), begin, begin, n_}, width);
            }
            for_rows(0, begin + width, [&](int64_t column) {
                float* const x = made.data() + column * n_ + begin;
                for (int64_t i = 0; i < width; ++i) {
                    double sum = column == begin + i ? 1 : 0;
                    if (column < begin) sum -= sums_[static_cast<size_t>(column * width + i)];
                    const float* const line = a.data() + (begin + i) * n_ + begin;
                    for (int64_t k = 0; k < i; ++k) sum -= static_cast<double>(line[k]) * x[k];
                    x[i] = static_cast<float>(sum / line[i]);
                }
            });
        }
        return made;
    }

  private:
    template <typename Work>
    void for_rows(int64_t begin, int64_t end, const Work& work) {
        team_.for_chunks((end - begin + kFactorRows - 1) / kFactorRows, [&](int64_t chunk) {
            const int64_t first = begin + chunk * kFactorRows;
            for (int64_t row = first; row < std::min(end, first + kFactorRows); ++row) work(row);
        });
    }

    // Copies rows [begin, begin + width) and columns [0, columns) of A, times FACTOR.
    void copy_block(const std::vector<float>& a, int64_t begin, int64_t width, int64_t columns,
                    float factor) {
        block_.resize(static_cast<size_t>(width * columns));
        for (int64_t r = 0; r < width; ++r)
            for (int64_t c = 0; c < columns; ++c)
                block_[static_cast<size_t>(r * columns + c)] =
                    factor * a[static_cast<size_t>((begin + r) * n_ + c)];
    }

    // Sets sums_ to X * block_ᵀ, [rows, width].
    void multiply(const kernels::ActivationRows& x, int64_t width) {
        const kernels::PackedMatrix matrix = matrix_on(block_, width, x.in);
        activations_.assign(x, matrix.shape, team_);
        const kernels::Product product{matrix, sums_.data(), width, nullptr, false};
        kernels::multiply({&product, 1}, activations_, team_);
    }

    // Subtracts the contribution of the columns before BEGIN from the columns [begin, begin +
    // width).
    void subtract_earlier(std::vector<float>& a, int64_t begin, int64_t width) {
        copy_block(a, begin, width, begin, 1);
        sums_.resize(static_cast<size_t>((n_ - begin) * width));
        multiply({a.data() + begin * n_, n_ - begin, begin, n_}, width);
        for_rows(begin, n_, [&](int64_t row) {
            const float* const sum = sums_.data() + (row - begin) * width;
            for (int64_t c = 0; c < width; ++c)
                a[static_cast<size_t>(row * n_ + begin + c)] -= sum[c];
        });
    }

    bool factor_diagonal(std::vector<float>& a, int64_t begin, int64_t width) const {
        for (int64_t r = 0; r < width; ++r) {
            float* const x = a.data() + (begin + r) * n_ + begin;
            for (int64_t c = 0; c <= r; ++c) {
                double sum = x[c];
                const float* const line = a.data() + (begin + c) * n_ + begin;
                for (int64_t k = 0; k < c; ++k) sum -= static_cast<double>(x[k]) * line[k];
                if (c < r) {
                    x[c] = static_cast<float>(sum / line[c]);
                } else if (sum > 0 && std::isfinite(sum)) {
                    x[c] = static_cast<float>(std::sqrt(sum));
                } else {
                    return false;
                }
            }
        }
        return true;
    }

    int64_t n_;
    kernels::ThreadTeam& team_;
    std::vector<float> block_, sums_;
    kernels::Activations activations_;
};

}  // namespace

// Computes U with one factorization and one inversion. Let A be MOMENTS with its rows and columns
// in reverse order. Factorize A = L Lᵀ. Let V be L with its rows and columns in reverse order.
// Then MOMENTS = V Vᵀ, so U is the inverse of V.
std::vector<float> inverse_factor(const std::vector<float>& moments, int64_t n, double damping,
                                  kernels::ThreadTeam& team) {
    DSL_CHECK(std::ssize(moments) == n * n, "{} moments of {} inputs", moments.size(), n);
    double mean = 0;
    for (int64_t i = 0; i < n; ++i) mean += moments[static_cast<size_t>(i * (n + 1))];
    mean /= static_cast<double>(n);
    if (!(mean > 0)) {
        std::vector<float> u(moments.size());
        for (int64_t i = 0; i < n; ++i) u[static_cast<size_t>(i * (n + 1))] = 1;
        return u;
    }
    BlockFactor factor(n, team);
    std::vector<float> a(moments.size());
    for (double added = damping;; added = std::max(10 * added, 1e-4)) {
        DSL_CHECK(added < 1e6, "moments that are not finite");
        for (int64_t i = 0; i < n; ++i)
            std::reverse_copy(moments.begin() + i * n, moments.begin() + (i + 1) * n,
                              a.begin() + (n - 1 - i) * n);
        for (int64_t i = 0; i < n; ++i) {
            float& diagonal = a[static_cast<size_t>(i * (n + 1))];
            diagonal = static_cast<float>((diagonal > 0 ? diagonal : mean) * (1 + added));
        }
        if (factor.cholesky(a)) break;
    }
    const std::vector<float> inverse = factor.inverse_transposed(a);
    std::vector<float> u = std::move(a);
    std::ranges::fill(u, 0.0F);
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = i; j < n; ++j)
            u[static_cast<size_t>(i * n + j)] =
                inverse[static_cast<size_t>((n - 1 - j) * n + n - 1 - i)];
    return u;
}

}  // namespace dslaunch::compress
