// Compensated rounding, compared with a slow reference in fp64: after each input, the weights that
// are left change as optimal brain quantization says (Frantar & Alistarh 2022, equation 3).
#include "compress/compensation.h"

#include <cmath>
#include <random>

#include "compress/input_moments.h"
#include "compress/inverse_factor.h"
#include "support/catch.h"
#include "unit/kernels/matrix_numbers.h"

namespace dslaunch::compress {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Returns the inverse of A by Gauss-Jordan elimination. REQUIRES: A is positive definite.
Matrix inverse(Matrix a) {
    const size_t n = a.size();
    Matrix made(n, std::vector<double>(n));
    for (size_t i = 0; i < n; ++i) made[i][i] = 1;
    for (size_t i = 0; i < n; ++i) {
        const double pivot = a[i][i];
        for (size_t c = 0; c < n; ++c) {
            a[i][c] /= pivot;
            made[i][c] /= pivot;
        }
        for (size_t r = 0; r < n; ++r) {
            const double factor = a[r][i];
            if (r == i || factor == 0) continue;
            for (size_t c = 0; c < n; ++c) {
                a[r][c] -= factor * a[i][c];
                made[r][c] -= factor * made[i][c];
            }
        }
    }
    return made;
}

// Rounds one row in ORDER. The inverse of the moments of the inputs that are left is made again for
// each.
std::vector<uint8_t> slow_codes(const RoundingForm& form, std::vector<float> row,
                                const Matrix& moments, const std::vector<int64_t>& order) {
    const size_t in = row.size();
    const auto group = static_cast<size_t>(form.group == 0 ? std::ssize(row) : form.group);
    std::vector<GroupScale> scales;
    for (size_t i = 0; i < in; i += group)
        scales.push_back(fit_group(form, std::span(row).subspan(i, std::min(group, in - i))));
    std::vector<uint8_t> codes(in);
    for (size_t n = 0; n < in; ++n) {
        const auto input = static_cast<size_t>(order[n]);
        const GroupScale& scale = scales[input / group];
        codes[input] = code_of(form, scale, row[input]);
        Matrix left;
        for (size_t r = n; r < in; ++r) {
            left.emplace_back();
            for (size_t c = n; c < in; ++c)
                left.back().push_back(
                    moments[static_cast<size_t>(order[r])][static_cast<size_t>(order[c])]);
        }
        const Matrix of_left = inverse(left);
        const double error = row[input] - number_of(form, scale, codes[input]);
        for (size_t k = n; k < in; ++k) {
            float& number = row[static_cast<size_t>(order[k])];
            number = static_cast<float>(number - error / of_left[0][0] * of_left[0][k - n]);
        }
    }
    return codes;
}

// Returns the moments of ROWS rows of inputs that depend on each other, [in, in].
std::vector<float> moments_of_rows(int64_t in, int64_t rows, unsigned seed,
                                   kernels::ThreadTeam& team) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(rows * in));
    for (int64_t r = 0; r < rows; ++r) {
        float common = normal(random);
        for (int64_t i = 0; i < in; ++i) {
            common = 0.8F * common + 0.6F * normal(random);
            x[static_cast<size_t>(r * in + i)] = common * (1 + static_cast<float>(i % 5));
        }
    }
    InputMoments moments(in);
    moments.add(x.data(), rows, team);
    CHECK(moments.rows() == rows);
    return moments.mean();
}

std::vector<float> some_moments(int64_t in, unsigned seed, kernels::ThreadTeam& team) {
    return moments_of_rows(in, 4 * in, seed, team);
}

Matrix in_fp64(const std::vector<float>& numbers, int64_t n) {
    Matrix made;
    for (int64_t i = 0; i < n; ++i)
        made.emplace_back(numbers.begin() + i * n, numbers.begin() + (i + 1) * n);
    return made;
}

TEST_CASE("moments are the mean products of the inputs") {
    kernels::ThreadTeam team(1);
    InputMoments moments(3);
    const float first[] = {1, 2, 3, 0, -1, 4}, second[] = {2, 0, 1};
    moments.add(first, 2, team);
    moments.add(second, 1, team);
    // (1 2 3), (0 -1 4), (2 0 1): sums of products, divided by 3.
    const std::vector<float> sums = {5, 2, 5, 2, 5, 2, 5, 2, 26};
    const std::vector<float> mean = moments.mean();
    for (size_t i = 0; i < 9; ++i) CHECK(mean[i] == Approx(sums[i] / 3));
}

TEST_CASE("the factor is that of the inverse, for any number of inputs") {
    kernels::ThreadTeam team(2);
    for (const int64_t n : {1, 2, 63, 64, 65, 200}) {
        const std::vector<float> moments = some_moments(n, 5, team);
        const std::vector<float> u = inverse_factor(moments, n, 0.01, team);
        // U M U^T, with the diagonal of M times 1.01, is the unit matrix. fp32 leaves about n 2^-24
        // times the condition number, which damping keeps below 1e4.
        double worst = 0;
        for (int64_t i = 0; i < n; ++i) {
            std::vector<double> line(static_cast<size_t>(n));
            for (int64_t k = 0; k < n; ++k)
                for (int64_t j = i; j < n; ++j)
                    line[static_cast<size_t>(k)] +=
                        static_cast<double>(u[static_cast<size_t>(i * n + j)]) *
                        moments[static_cast<size_t>(j * n + k)] * (j == k ? 1.01 : 1);
            for (int64_t r = 0; r < n; ++r) {
                double sum = 0;
                for (int64_t k = 0; k < n; ++k)
                    sum += line[static_cast<size_t>(k)] * u[static_cast<size_t>(r * n + k)];
                worst = std::max(worst, std::fabs(sum - (r == i ? 1 : 0)));
                if (r > i) CHECK(u[static_cast<size_t>(r * n + i)] == 0);
            }
        }
        INFO(n << " inputs");
        CHECK(worst < 1e-2);
    }
}

TEST_CASE("without moments, or with an input that is always 0, there is still a factor") {
    kernels::ThreadTeam team(1);
    CHECK(inverse_factor({0, 0, 0, 0}, 2, 0.01, team) == std::vector<float>{1, 0, 0, 1});
    // The second input counts as one with the mean moment, 2.
    const std::vector<float> u = inverse_factor({4, 0, 0, 0}, 2, 0, team);
    CHECK(u[0] == Approx(0.5));
    CHECK(u[3] == Approx(1 / std::sqrt(2.0)));
    // Two inputs that are always equal: damped until there is an inverse.
    CHECK(std::isfinite(inverse_factor({1, 1, 1, 1}, 2, 0, team)[0]));
}

TEST_CASE("compensated codes are those of the slow reference") {
    kernels::ThreadTeam team(1);
    constexpr int64_t kOut = 6, kIn = 8;
    for (const int64_t group : {0, 4, 8})
        for (const bool has_minimum : {false, true}) {
            const RoundingForm form{3, false, has_minimum, group, false, DType::kF32};
            const std::vector<float> moments = some_moments(kIn, 11, team);
            const std::vector<float> weights = test::normal_numbers(kOut * kIn, 12, 0.05F);
            const InputOrder inputs = order_inputs(moments, kIn, 0, team);
            // The moments grow with the square of 1 + i % 5.
            CHECK(inputs.order.front() == 4);
            const RoundedMatrix made = round_with_compensation(form, weights, kOut, inputs, team);
            for (int64_t row = 0; row < kOut; ++row) {
                const std::vector<uint8_t> expected = slow_codes(
                    form, {weights.begin() + row * kIn, weights.begin() + (row + 1) * kIn},
                    in_fp64(moments, kIn), inputs.order);
                const std::vector<uint8_t> codes(made.codes.begin() + row * kIn,
                                                 made.codes.begin() + (row + 1) * kIn);
                INFO("group " << group << ", row " << row);
                CHECK(codes == expected);
            }
        }
}

TEST_CASE("compensation makes the error of the outputs smaller than rounding to nearest") {
    kernels::ThreadTeam team(1);
    // 300 inputs are more than one block of columns, and no multiple of it.
    for (const int64_t in : {24, 300})
        for (const int64_t group : {0, 12})
            for (unsigned seed = 0; seed < 5; ++seed) {
                const RoundingForm form{4, false, false, group, false, DType::kF32};
                const std::vector<float> moments = some_moments(in, seed, team);
                const std::vector<float> weights = test::normal_numbers(7 * in, seed + 100, 0.05F);
                const RoundedMatrix nearest = round_to_nearest(form, weights, 7, team);
                const RoundedMatrix made = round_with_compensation(
                    form, weights, 7, order_inputs(moments, in, 0.01, team), team);
                const double plain =
                    output_error(weights, numbers_of(nearest, team), moments, in, team);
                const double compensated =
                    output_error(weights, numbers_of(made, team), moments, in, team);
                INFO(in << " inputs, group " << group << ", seed " << seed);
                CHECK(compensated < plain);
            }
}

TEST_CASE("compensation with few rows loses no more than rounding to nearest on other rows") {
    kernels::ThreadTeam team(1);
    constexpr int64_t kIn = 72, kOut = 24;
    const RoundingForm form{4, false, true, 24, false, DType::kF32};
    CHECK_FALSE(are_enough_rows(kIn, 0));
    CHECK_FALSE(are_enough_rows(kIn, 3));
    CHECK_FALSE(are_enough_rows(8, 0));
    CHECK(damping_of(kIn, 72000) == Approx(0.011));
    for (const int64_t rows : {16, 48, 96}) {
        REQUIRE(are_enough_rows(kIn, rows));
        double plain = 0, compensated = 0;
        for (unsigned seed = 0; seed < 5; ++seed) {
            const std::vector<float> moments = moments_of_rows(kIn, rows, seed, team);
            const std::vector<float> others = moments_of_rows(kIn, 400, seed + 50, team);
            const std::vector<float> weights = test::normal_numbers(kOut * kIn, seed + 100, 0.05F);
            const RoundedMatrix nearest = round_to_nearest(form, weights, kOut, team);
            const RoundedMatrix made = round_with_compensation(
                form, weights, kOut, order_inputs(moments, kIn, damping_of(kIn, rows), team), team);
            plain += output_error(weights, numbers_of(nearest, team), others, kIn, team);
            compensated += output_error(weights, numbers_of(made, team), others, kIn, team);
        }
        INFO(rows << " rows: " << compensated / 5 << ", to nearest " << plain / 5);
        CHECK(compensated < plain);
    }
}

TEST_CASE("all of it has the same bits for any number of threads") {
    kernels::ThreadTeam one(1), three(3);
    constexpr int64_t kIn = 150;
    const std::vector<float> moments = some_moments(kIn, 2, one);
    CHECK(moments == some_moments(kIn, 2, three));
    const InputOrder inputs = order_inputs(moments, kIn, 0.01, one);
    CHECK(inputs.factor == order_inputs(moments, kIn, 0.01, three).factor);
    const RoundingForm form{2, false, true, 10, true, DType::kBF16};
    const std::vector<float> weights = test::normal_numbers(33 * kIn, 3, 0.05F);
    CHECK(round_with_compensation(form, weights, 33, inputs, one).codes ==
          round_with_compensation(form, weights, 33, inputs, three).codes);
}

}  // namespace
}  // namespace dslaunch::compress
