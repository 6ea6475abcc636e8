// Weights in fewer bits: the numbers that are read back, the refusals, and that the bytes depend
// only on the weights.
#include "kernels/matrix/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernel_numbers.h"
#include "kernels/matrix/cpu/matrix_kernels.h"
#include "matrix_numbers.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

constexpr MatrixForm kPackedForms[] = {MatrixForm::kInt8, MatrixForm::kInt4, MatrixForm::kNf4};

struct PackedMatrixSize {
    int64_t out, in;
};
constexpr PackedMatrixSize kPackedMatrixSizes[] = {{1, 1},   {1, 5},    {3, 33},
                                                   {17, 64}, {16, 128}, {33, 1091}};

float largest_magnitude(const float* values, int64_t numel) {
    float largest = 0;
    for (int64_t i = 0; i < numel; ++i) largest = std::max(largest, std::abs(values[i]));
    return largest;
}

// Calls CHECK(row, first input, inputs) for every group.
template <typename F>
void for_groups(const MatrixShape& shape, const F& check) {
    for (int64_t row = 0; row < shape.out; ++row)
        for (int64_t k = 0; k < shape.in; k += shape.group)
            check(row, k, std::min(shape.group, shape.in - k));
}

}  // namespace

TEST_CASE("int8 weights come back within half a step of their group") {
    for (const int64_t group : {32, 64, 128})
        for (const PackedMatrixSize size : kPackedMatrixSizes) {
            const MatrixShape shape{MatrixForm::kInt8, size.out, size.in, group};
            const std::vector<float> weights = normal_numbers(size.out * size.in, 5);
            const Matrix matrix = make_matrix(shape, weights);
            for_groups(shape, [&](int64_t row, int64_t k, int64_t numel) {
                const int64_t at = row * size.in + k;
                // The step is a 127th of the largest, raised to bf16 (2^-7 at most); the division
                // and the product round in fp32, which the last factor covers.
                const float step = largest_magnitude(weights.data() + at, numel) / 127.0F;
                const float bound = 0.5F * step * (1 + 0x1p-7F) * (1 + 0x1p-14F);
                for (int64_t i = at; i < at + numel; ++i)
                    REQUIRE(std::abs(matrix.meaning[i] - weights[i]) <= bound);
            });
        }
}

TEST_CASE("int4 weights have less error than the grid that spans their group") {
    for (const int64_t group : {32, 64, 128}) {
        const PackedMatrixSize size{33, 1091};
        const MatrixShape shape{MatrixForm::kInt4, size.out, size.in, group};
        const std::vector<float> weights = normal_numbers(size.out * size.in, 6);
        const Matrix matrix = make_matrix(shape, weights);
        double found = 0, plain = 0;
        for_groups(shape, [&](int64_t row, int64_t k, int64_t numel) {
            const float* const values = weights.data() + row * size.in + k;
            const auto [low, high] = std::minmax_element(values, values + numel);
            const double step = (*high - std::min(*low, 0.0F)) / 15.0;
            // Errors of rounding to a grid are uniform: their mean square is step² / 12.
            plain += static_cast<double>(numel) * step * step / 12;
            for (int64_t i = 0; i < numel; ++i) {
                const double error = matrix.meaning[row * size.in + k + i] - values[i];
                found += error * error;
            }
        });
        INFO("group " << group << ": " << found / plain);
        REQUIRE(found < plain);
    }
}

TEST_CASE("numbers on a grid of 16 come back from int4") {
    const MatrixShape shape = matrix_shape(MatrixForm::kInt4, 17, 96);
    std::vector<float> weights(static_cast<size_t>(shape.out * shape.in));
    for (size_t i = 0; i < weights.size(); ++i)
        weights[i] = 0.25F * (static_cast<float>(i % 16) - 8);
    const Matrix matrix = make_matrix(shape, weights);
    // Sums of squares of the fit in fp32 and codes of 8 bits at their largest: a few 2^-24 of the
    // largest number, 2.
    for (size_t i = 0; i < weights.size(); ++i)
        REQUIRE(std::abs(matrix.meaning[i] - weights[i]) <= 32 * 0x1p-24F * 2);
}

TEST_CASE("nf4 gives its table's numbers back, and their opposites") {
    for (const int64_t group : {32, 64, 128})
        for (const float factor : {1.0F, -1.0F, 0.25F, -1536.0F}) {
            const MatrixShape shape{MatrixForm::kNf4, 3, 128, group};
            std::vector<float> weights(static_cast<size_t>(shape.out * shape.in));
            for (size_t i = 0; i < weights.size(); ++i)
                weights[i] = factor * kNf4Numbers[i * 7 % 16];
            INFO("groups of " << group << " times " << factor);
            REQUIRE(make_matrix(shape, weights).meaning == weights);
        }
}

TEST_CASE("nf4 weights have less error than QLoRA's, which the largest of 64 scales") {
    const MatrixShape shape = matrix_shape(MatrixForm::kNf4, 33, 1088);
    const std::vector<float> weights = normal_numbers(shape.out * shape.in, 8);
    const Matrix matrix = make_matrix(shape, weights);
    double found = 0, plain = 0;
    for (size_t first = 0; first < weights.size(); first += 64) {
        const float scale = largest_magnitude(weights.data() + first, 64);
        for (size_t i = first; i < first + 64; ++i) {
            double nearest = std::numeric_limits<double>::infinity();
            for (const float number : kNf4Numbers)
                nearest = std::min(nearest, std::abs(double{number} * scale - weights[i]));
            plain += nearest * nearest;
            found += std::pow(double{matrix.meaning[i]} - weights[i], 2);
        }
    }
    // For normal numbers .0765² instead of .0920². The mean of 36,000 squares is known to 2 %.
    INFO("a part " << found / plain << " of the squares");
    REQUIRE(found < 0.72 * plain);
}

TEST_CASE("packed bytes depend on the weights alone") {
    for (const MatrixForm form : kPackedForms)
        for (const PackedMatrixSize size : kPackedMatrixSizes) {
            const MatrixShape shape = matrix_shape(form, size.out, size.in);
            const std::vector<float> weights = normal_numbers(size.out * size.in, 9);
            const Matrix reference = make_matrix(shape, weights);
            INFO(matrix_form_name(form) << " " << size.out << " x " << size.in);
            for (const MatrixIsa isa : available_matrix_isas()) {
                INFO(matrix_isa_name(isa));
                REQUIRE(make_matrix(shape, weights, isa).bytes == reference.bytes);
                REQUIRE(make_matrix(shape, weights, isa, 3).bytes == reference.bytes);
            }
        }
}

TEST_CASE("a matrix may be packed in parts, from any type of numbers") {
    for (const MatrixForm form : kPackedForms)
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
            const MatrixShape shape = matrix_shape(form, 50, 70);
            const std::vector<float> numbers = normal_numbers(shape.out * shape.in, 10);
            std::vector<uint16_t> halves(numbers.size());
            to_half(numbers.data(), halves.data(), std::ssize(numbers), dtype);
            std::vector<float> widened;
            for (const uint16_t half : halves)
                widened.push_back(static_cast<float>(meaning(half, dtype)));
            std::vector<std::byte> found(static_cast<size_t>(matrix_bytes(shape)));
            ThreadTeam team(2);
            for (const Range rows : {Range{32, 18}, Range{0, 16}, Range{16, 16}})
                quantize(shape, {halves.data() + rows.begin * shape.in, dtype, rows}, found, team);
            REQUIRE(found == make_matrix(shape, widened).bytes);
        }
}

TEST_CASE("weights that are not finite make their group NaN, in int4 their row") {
    for (const MatrixForm form : kPackedForms)
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
            for (const MatrixIsa isa : available_matrix_isas()) {
                const MatrixShape shape = matrix_shape(form, 18, 200);
                std::vector<float> weights = normal_numbers(shape.out * shape.in, 11);
                const int64_t group = 1, row = 17;
                weights[row * shape.in + group * shape.group + 3] = bad;
                const Matrix matrix = make_matrix(shape, weights, isa);
                INFO(matrix_form_name(form) << " " << matrix_isa_name(isa));
                for_groups(shape, [&](int64_t r, int64_t k, int64_t numel) {
                    const bool hit =
                        r == row && (form == MatrixForm::kInt4 || k == group * shape.group);
                    for (int64_t i = 0; i < numel; ++i)
                        REQUIRE(std::isnan(matrix.meaning[r * shape.in + k + i]) == hit);
                });
            }
}

TEST_CASE("weights of one value, of 0 and of extreme sizes come back") {
    for (const MatrixForm form : kPackedForms)
        for (const float value : {0.0F, 1.0F, -3.0F, 1e-30F, 1e30F}) {
            const MatrixShape shape = matrix_shape(form, 2, 64);
            const std::vector<float> weights(static_cast<size_t>(shape.out * shape.in), value);
            // The scale is the number itself / 127, / 15 or 1; int8's scale is raised by 2^-7.
            for (const float found : make_matrix(shape, weights).meaning)
                REQUIRE(std::abs(found - value) <= std::abs(value) * 0x1p-7F);
        }
}

TEST_CASE("shapes that no matrix has are refused") {
    const MatrixForm none{17};
    constexpr int64_t kLargest = kMatrixSizeMax;
    const MatrixShape bad[] = {
        {MatrixForm::kF32, 0, 4, 0},
        {MatrixForm::kF32, 4, 0, 0},
        {MatrixForm::kF32, -1, 4, 0},
        {MatrixForm::kF32, kLargest + 1, 4, 0},
        {MatrixForm::kF32, 4, std::numeric_limits<int64_t>::max(), 0},
        {MatrixForm::kBf16, 4, 4, 32},
        {MatrixForm::kInt8, 4, 4, 0},
        {MatrixForm::kInt8, 4, 4, 33},
        {MatrixForm::kInt4, 4, 4, -32},
        {MatrixForm::kInt4, 4, 4, 256},
        {MatrixForm::kNf4, 4, 4, 16},
        {none, 4, 4, 32},
    };
    for (const MatrixShape& shape : bad) {
        INFO(matrix_form_name(shape.form)
             << " " << shape.out << " x " << shape.in << " by " << shape.group);
        REQUIRE_THROWS_AS(check_shape(shape), Error);
    }
    for (const MatrixForm form : kForms) {
        const MatrixShape largest = matrix_shape(form, kLargest, kLargest);
        REQUIRE_NOTHROW(check_shape(largest));
        REQUIRE(matrix_bytes(largest) > 0);
    }
}

TEST_CASE("the bytes of a weight are those that the forms promise") {
    struct Row {
        MatrixForm form;
        double bits;
    };
    // int4 and nf4 take 4 bits, and 16 for each group; int4 takes 64 more for each row.
    for (const Row row :
         {Row{MatrixForm::kF32, 32}, Row{MatrixForm::kBf16, 16}, Row{MatrixForm::kInt8, 8.5},
          Row{MatrixForm::kInt4, 4.5 + 64.0 / 4096}, Row{MatrixForm::kNf4, 4.5}}) {
        const int64_t bytes = matrix_bytes(matrix_shape(row.form, 4096, 4096));
        REQUIRE(static_cast<double>(bytes) * 8 / 4096 / 4096 == row.bits);
    }
}
