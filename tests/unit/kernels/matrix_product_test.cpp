// Products with weights of every form, on every instruction set: compared with fp64, and bit by bit
// between instruction sets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernel_numbers.h"
#include "kernels/matrix/multiply.h"
#include "matrix_numbers.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

struct Size {
    int64_t out, in;
};
// Short last groups and panels, several blocks of inputs and, for 520 outputs, of outputs.
constexpr Size kMatrixProductSizes[] = {{1, 1}, {1, 5}, {3, 33}, {17, 64}, {33, 1091}, {520, 100}};

struct Run {
    MatrixIsa isa = MatrixIsa::kScalar;
    int threads = 1;
};

std::vector<float> product(const Matrix& matrix, const std::vector<float>& x, int64_t rows, Run run,
                           const float* bias = nullptr, float held = -7) {
    const MatrixShape& shape = matrix.shape;
    std::vector<float> y(static_cast<size_t>(rows * shape.out), held);
    ThreadTeam team(run.threads, ThreadTeam::kTokenSpin);
    Activations activations;
    activations.assign({x.data(), rows, shape.in, shape.in}, shape, team, run.isa);
    const Product one{matrix.view(), y.data(), shape.out, bias, held == 0.5F};
    multiply({&one, 1}, activations, team);
    return y;
}

bool rounds_activations(MatrixForm form) {
    return form == MatrixForm::kInt8 || form == MatrixForm::kInt4;
}

// Returns a bound on the error of Σ x w. A sum of n products in fp32 has an error of at most n
// 2^-24 Σ|x w|, in any order; n counts the terms and their rounding. An activation that is rounded
// to 127 steps of its group's largest has an error of half a step. An activation that is the sum of
// two bf16 numbers has an error of 2^-17 of itself. An int4 weight is the difference of two parts,
// and the sum of the magnitudes must count both: the low end is at most 16 steps below 0, so the
// sum is doubled.
double bound(const MatrixShape& shape, const float* x, const float* w) {
    double sum = 0, rounding = 0;
    const int64_t group = shape.group == 0 ? shape.in : shape.group;
    for (int64_t first = 0; first < shape.in; first += group) {
        const int64_t end = std::min(shape.in, first + group);
        double largest = 0, weights = 0, largest_weight = 0;
        for (int64_t k = first; k < end; ++k) {
            largest = std::max(largest, std::abs(double{x[k]}));
            weights += std::abs(double{w[k]});
            largest_weight = std::max(largest_weight, std::abs(double{w[k]}));
        }
        rounding += largest / 127 / 2 * weights;
        sum += largest * largest_weight * static_cast<double>(end - first);
    }
    const double fp32 = static_cast<double>(shape.in + 64) * 0x1p-24 * 2 * sum;
    if (shape.form == MatrixForm::kBf16) return fp32 + 0x1p-17 * sum;
    return fp32 + (rounds_activations(shape.form) ? rounding * (1 + 1e-5) : 0);
}

float bf16_of(float x) {
    uint16_t half = 0;
    to_half(&x, &half, 1, DType::kBF16, Isa::kScalar);
    return static_cast<float>(meaning(half, DType::kBF16));
}

// Sums 16 pairs of inputs as a tile does: in two chains of additions, one for the pairs' first
// numbers and one for their second numbers (Intel's manual, TDPBF16PS). Missing numbers count as 0.
float of_tile(const float* x, const float* w, int64_t numel) {
    float chains[2] = {0, 0};
    for (int64_t k = 0; k < numel; ++k) chains[k % 2] = std::fma(x[k], w[k], chains[k % 2]);
    return chains[0] + chains[1];
}

// Computes as kAmx does with bf16 weights: the sum of the high parts' products and the sum of the
// low parts' products, each 32 inputs at a time.
std::vector<float> product_in_tiles(const Matrix& matrix, const std::vector<float>& x, int64_t rows,
                                    const float* bias) {
    const int64_t out = matrix.shape.out, in = matrix.shape.in;
    std::vector<float> high, low, y;
    for (const float number : x) {
        high.push_back(bf16_of(number));
        low.push_back(bf16_of(number - high.back()));
    }
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t o = 0; o < out; ++o) {
            float sums[2] = {0, 0};
            for (int64_t k = 0; k < in; k += 32) {
                const float* const w = matrix.meaning.data() + o * in + k;
                const int64_t numel = std::min<int64_t>(32, in - k);
                sums[0] += of_tile(high.data() + r * in + k, w, numel);
                sums[1] += of_tile(low.data() + r * in + k, w, numel);
            }
            y.push_back(sums[0] + sums[1] + bias[o]);
        }
    return y;
}

}  // namespace

TEST_CASE("products are those of the numbers that the weights stand for") {
    for (const MatrixForm form : kForms)
        for (const Size size : kMatrixProductSizes)
            for (const int64_t rows : {1, 2, 3, 9, 33}) {
                const MatrixShape shape = matrix_shape(form, size.out, size.in);
                const Matrix matrix = make_matrix(shape, normal_numbers(size.out * size.in, 1));
                const std::vector<float> x = normal_numbers(rows * size.in, 2);
                const std::vector<float> y = product(matrix, x, rows, {matrix_isa_in_use(), 2});
                INFO(matrix_form_name(form)
                     << " " << size.out << " x " << size.in << ", " << rows << " rows");
                for (int64_t r = 0; r < rows; ++r)
                    for (int64_t o = 0; o < size.out; ++o) {
                        const float* const row = x.data() + r * size.in;
                        const float* const w = matrix.meaning.data() + o * size.in;
                        double sum = 0;
                        for (int64_t k = 0; k < size.in; ++k) sum += double{row[k]} * w[k];
                        const double error = std::abs(y[r * size.out + o] - sum);
                        if (error <= bound(shape, row, w)) continue;
                        INFO("row " << r << " output " << o << ": off by " << error);
                        REQUIRE(error <= bound(shape, row, w));
                    }
            }
}

TEST_CASE("a product has equal bits on every instruction set and for every team") {
    for (const MatrixForm form : kForms)
        for (const Size size : kMatrixProductSizes) {
            const MatrixShape shape = matrix_shape(form, size.out, size.in);
            const Matrix matrix = make_matrix(shape, normal_numbers(size.out * size.in, 3));
            const std::vector<float> bias = normal_numbers(size.out, 4);
            for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
                const std::vector<float> x = normal_numbers(rows * size.in, 5);
                const std::vector<float> scalar = product(matrix, x, rows, {}, bias.data());
                for (const MatrixIsa isa : available_matrix_isas())
                    for (const int threads : {1, 3}) {
                        const bool tiles = isa == MatrixIsa::kAmx && form == MatrixForm::kBf16;
                        const std::vector<float> reference =
                            tiles ? product_in_tiles(matrix, x, rows, bias.data()) : scalar;
                        INFO(matrix_form_name(form)
                             << " " << matrix_isa_name(isa) << " " << size.out << " x " << size.in
                             << ", " << rows << " rows, " << threads << " threads");
                        REQUIRE(product(matrix, x, rows, {isa, threads}, bias.data()) == reference);
                    }
            }
        }
}

TEST_CASE("other groups than the default have equal bits too") {
    for (const MatrixForm form : {MatrixForm::kInt8, MatrixForm::kInt4, MatrixForm::kNf4})
        for (const int64_t group : {64, 128}) {
            const MatrixShape shape{form, 33, 300, group};
            const Matrix matrix = make_matrix(shape, normal_numbers(33 * 300, 6));
            const std::vector<float> x = normal_numbers(9 * 300, 7);
            const std::vector<float> reference = product(matrix, x, 9, {});
            for (const MatrixIsa isa : available_matrix_isas())
                REQUIRE(product(matrix, x, 9, {isa, 2}) == reference);
        }
}

TEST_CASE("a row's product does not depend on the other rows") {
    for (const MatrixForm form : kForms) {
        const Size size{33, 1091};
        const MatrixShape shape = matrix_shape(form, size.out, size.in);
        const Matrix matrix = make_matrix(shape, normal_numbers(size.out * size.in, 8));
        constexpr int64_t kRows = 300;  // more than a chunk of rows
        const std::vector<float> x = normal_numbers(kRows * size.in, 9);
        const Run run{matrix_isa_in_use(), 2};
        const std::vector<float> all = product(matrix, x, kRows, run);
        for (int64_t r = 0; r < kRows; r += 13) {
            const std::vector<float> row(x.begin() + r * size.in, x.begin() + (r + 1) * size.in);
            const std::vector<float> one = product(matrix, row, 1, run);
            INFO(matrix_form_name(form) << " row " << r);
            REQUIRE(std::equal(one.begin(), one.end(), all.begin() + r * size.out));
        }
    }
}

TEST_CASE("a product is added to what y holds, after its bias") {
    for (const MatrixForm form : kForms) {
        const MatrixShape shape = matrix_shape(form, 17, 64);
        const Matrix matrix = make_matrix(shape, normal_numbers(17 * 64, 10));
        const std::vector<float> x = normal_numbers(5 * 64, 11), bias = normal_numbers(17, 12);
        const std::vector<float> plain = product(matrix, x, 5, {matrix_isa_in_use(), 1});
        const std::vector<float> added =
            product(matrix, x, 5, {matrix_isa_in_use(), 1}, bias.data(), 0.5F);
        for (size_t i = 0; i < plain.size(); ++i)
            REQUIRE(added[i] == 0.5F + (plain[i] + bias[i % 17]));
    }
}

TEST_CASE("several matrices share one set of activations, and rows may lie apart") {
    ThreadTeam team(3);
    for (const MatrixForm form : kForms) {
        constexpr int64_t kIn = 100, kRows = 4, kStride = 107;
        const Matrix a = make_matrix(matrix_shape(form, 48, kIn), normal_numbers(48 * kIn, 13));
        const Matrix b = make_matrix(matrix_shape(form, 19, kIn), normal_numbers(19 * kIn, 14));
        std::vector<float> x = normal_numbers(kRows * kIn, 15), apart(kRows * kStride, 1e30F);
        for (int64_t r = 0; r < kRows; ++r)
            std::copy_n(x.begin() + r * kIn, kIn, apart.begin() + r * kStride);
        Activations activations;
        activations.assign({apart.data(), kRows, kIn, kStride}, a.shape, team);
        REQUIRE(activations.serves(b.shape));
        constexpr int64_t kTogether = 48 + 19 + 2;
        std::vector<float> y(kRows * kTogether, -1);
        const Product both[] = {{a.view(), y.data(), kTogether},
                                {b.view(), y.data() + 48, kTogether}};
        multiply(both, activations, team);
        const std::vector<float> first = product(a, x, kRows, {matrix_isa_in_use(), 1});
        const std::vector<float> second = product(b, x, kRows, {matrix_isa_in_use(), 1});
        for (int64_t r = 0; r < kRows; ++r) {
            const auto row = y.begin() + r * kTogether;
            REQUIRE(std::equal(row, row + 48, first.begin() + r * 48));
            REQUIRE(std::equal(row + 48, row + 67, second.begin() + r * 19));
            REQUIRE(row[67] == -1);
        }
    }
}

TEST_CASE("activations serve the matrices of their form, group and inputs alone") {
    ThreadTeam team(1);
    const std::vector<float> x(64);
    Activations activations;
    activations.assign({x.data(), 1, 64, 64}, matrix_shape(MatrixForm::kInt8, 8, 64), team);
    REQUIRE(activations.serves(matrix_shape(MatrixForm::kInt4, 9, 64)));
    REQUIRE_FALSE(activations.serves({MatrixForm::kInt8, 8, 64, 64}));
    REQUIRE_FALSE(activations.serves(matrix_shape(MatrixForm::kInt8, 8, 32)));
    REQUIRE_FALSE(activations.serves(matrix_shape(MatrixForm::kBf16, 8, 64)));
    for (const MatrixIsa isa : available_matrix_isas()) {
        activations.assign({x.data(), 1, 64, 64}, matrix_shape(MatrixForm::kF32, 8, 64), team, isa);
        REQUIRE(activations.serves(matrix_shape(MatrixForm::kFp16, 8, 64)));
        REQUIRE(activations.serves(matrix_shape(MatrixForm::kBf16, 8, 64)) ==
                (isa != MatrixIsa::kAmx));
        activations.assign({x.data(), 1, 64, 64}, matrix_shape(MatrixForm::kBf16, 8, 64), team,
                           isa);
        REQUIRE(activations.serves(matrix_shape(MatrixForm::kF32, 8, 64)));
        REQUIRE(activations.serves(matrix_shape(MatrixForm::kBf16, 8, 64)));
    }
}

TEST_CASE("an activation that is not finite reaches its own row alone") {
    for (const MatrixForm form : kForms)
        for (const MatrixIsa isa : available_matrix_isas())
            for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::infinity()}) {
                const MatrixShape shape = matrix_shape(form, 17, 100);
                const Matrix matrix = make_matrix(shape, normal_numbers(17 * 100, 16));
                std::vector<float> x = normal_numbers(9 * 100, 17);
                x[4 * 100 + 99] = bad;
                const std::vector<float> y = product(matrix, x, 9, {isa, 1});
                INFO(matrix_form_name(form) << " " << matrix_isa_name(isa));
                for (size_t i = 0; i < y.size(); ++i) REQUIRE(std::isfinite(y[i]) == (i / 17 != 4));
            }
}

TEST_CASE("activations of any size keep their product") {
    for (const MatrixForm form : {MatrixForm::kInt8, MatrixForm::kInt4})
        for (const float size : {0.0F, 1e-36F, 1e-20F, 1e20F}) {
            const MatrixShape shape = matrix_shape(form, 3, 32);
            const std::vector<float> ones(3 * 32, 1.0F);
            const Matrix matrix = make_matrix(shape, ones);
            const std::vector<float> x(32, size);
            // 32 equal products of a code 127; below 2^-118 an activation counts as 0.
            const float expected = size < 0x1p-118F ? 0.0F : 32 * size;
            for (const float y : product(matrix, x, 1, {matrix_isa_in_use(), 1}))
                REQUIRE(std::abs(y - expected) <= 0x1p-7F * expected);
        }
}
