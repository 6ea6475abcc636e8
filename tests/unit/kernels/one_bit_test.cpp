// Signs with one scale and error feedback, and the moves of hosts that step alone. Every
// instruction set must give the bits of a naive reference.
#include "kernels/one_bit.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernel_numbers.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

// Lengths around bytes, vectors and blocks, and odd and prime ones.
constexpr int64_t kLengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 127, 1021, 4096, 16'384, 16'385};

std::vector<float> one_bit_numbers(int64_t numel, unsigned seed) {
    const float rare[] = {0.0F, -0.0F, 1e-41F, -1e-41F};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(numel));
    for (float& x : out) x = random() % 9 == 0 ? rare[random() % 4] : normal(random);
    return out;
}

struct Compressed {
    std::vector<float> error;
    std::vector<uint8_t> bits;
    float scale = 0;
};

Compressed compressed(const std::vector<float>& values, float factor, std::vector<float> error,
                      Isa isa) {
    Compressed out{std::move(error), {}, 0};
    out.bits.assign(static_cast<size_t>(sign_bytes(std::ssize(values))), 0xA5);
    out.scale = compress_signs(values.data(), factor, out.error, out.bits.data(), isa);
    return out;
}

// Compresses element by element, as the algorithm is written.
Compressed naive(const std::vector<float>& values, float factor, const std::vector<float>& error) {
    const size_t numel = values.size();
    Compressed out{std::vector<float>(numel), std::vector<uint8_t>((numel + 7) / 8, 0), 0};
    double lanes[16] = {};  // the order of sums that all kernels share
    for (size_t i = 0; i < numel; ++i) {
        out.error[i] = values[i] * factor + error[i];
        lanes[i % 16] += double{out.error[i]} * double{out.error[i]};
    }
    double squares = 0;
    for (const double lane : lanes) squares += lane;
    out.scale = static_cast<float>(std::sqrt(squares / static_cast<double>(numel)));
    for (size_t i = 0; i < numel; ++i) {
        const bool positive = out.error[i] >= 0;
        out.error[i] -= positive ? out.scale : -out.scale;
        if (positive) out.bits[i / 8] |= static_cast<uint8_t>(1U << i % 8);
    }
    return out;
}

}  // namespace

TEST_CASE("signs, scale and error are those of the algorithm, on every instruction set") {
    for (const int64_t numel : kLengths)
        for (const float factor : {1.0F, 1.0F / 3.0F}) {
            const std::vector<float> values = one_bit_numbers(numel, 1),
                                     error = one_bit_numbers(numel, 2);
            const Compressed expected = naive(values, factor, error);
            for (const Isa isa : available()) {
                INFO(isa_name(isa) << ", " << numel << " elements, factor " << factor);
                const Compressed found = compressed(values, factor, error, isa);
                CHECK(found.bits == expected.bits);
                CHECK(std::bit_cast<uint32_t>(found.scale) ==
                      std::bit_cast<uint32_t>(expected.scale));
                CHECK(same(found.error, expected.error));
            }
        }
}

TEST_CASE("what the signs tell and what the error keeps add up to the value") {
    const std::vector<float> values = one_bit_numbers(5000, 3);
    const Compressed found = compressed(values, 1, std::vector<float>(5000, 0.0F), best_isa());
    std::vector<float> told(5000);
    expand_signs(found.bits.data(), found.scale, false, told);
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i)
        worst =
            std::max(worst, std::abs(double{told[i]} + double{found.error[i]} - double{values[i]}));
    // One rounding of a number below 8.
    CHECK(worst <= 0x1p-22);
}

TEST_CASE("signs come back as plus or minus the scale, or are added to what is there") {
    for (const int64_t numel : kLengths) {
        const std::vector<float> before = one_bit_numbers(numel, 4);
        const Compressed from =
            naive(one_bit_numbers(numel, 5), 1, std::vector<float>(before.size()));
        std::vector<float> expected, sums;
        for (size_t i = 0; i < before.size(); ++i) {
            const bool positive = (from.bits[i / 8] >> i % 8 & 1) != 0;
            expected.push_back(positive ? 0.75F : -0.75F);
            sums.push_back(before[i] + expected[i]);
        }
        for (const Isa isa : available()) {
            INFO(isa_name(isa) << ", " << numel << " elements");
            std::vector<float> out = before;
            expand_signs(from.bits.data(), 0.75F, false, out, isa);
            CHECK(same(out, expected));
            out = before;
            expand_signs(from.bits.data(), 0.75F, true, out, isa);
            CHECK(same(out, sums));
        }
    }
}

TEST_CASE("a value that is not finite shows in the scale") {
    for (const Isa isa : available()) {
        std::vector<float> values = one_bit_numbers(100, 6);
        values[77] = std::numeric_limits<float>::quiet_NaN();
        CHECK(std::isnan(compressed(values, 1, std::vector<float>(100), isa).scale));
        values[77] = std::numeric_limits<float>::infinity();
        CHECK(!std::isfinite(compressed(values, 1, std::vector<float>(100), isa).scale));
    }
}

TEST_CASE("a frozen variance stays, and an element that it is 0 for moves by decay alone") {
    for (const Isa isa : available()) {
        const int64_t numel = 133;
        std::vector<float> gradient = one_bit_numbers(numel, 7),
                           momentum = one_bit_numbers(numel, 8);
        std::vector<float> variance = one_bit_numbers(numel, 9),
                           parameters = one_bit_numbers(numel, 10);
        for (float& v : variance) v = v * v;
        variance[5] = variance[130] = 0;
        const std::vector<float> m = momentum, v = variance, p = parameters;
        const float* const gradients[] = {gradient.data()};
        FlatRange range;
        range.numel = numel;
        range.gradients = gradients;
        range.parameters = parameters;
        range.first = momentum;
        range.second = variance;
        AdamStep step{.lr = 0.01, .weight_decay = 0.1, .bias_correction = false};
        step.frozen_variance = true;
        adam_step(range, step, isa);
        INFO(isa_name(isa));
        CHECK(same(variance, v));
        double worst = 0;
        for (size_t i = 0; i < m.size(); ++i) {
            const double next = v[i] > 0 ? 0.9 * m[i] + 0.1 * gradient[i] : 0;
            const double moved =
                p[i] * (1 - 0.001) - 0.01 * next / (std::sqrt(double{v[i]}) + 1e-8);
            worst = std::max({worst, std::abs(momentum[i] - next),
                              std::abs(parameters[i] - moved) / (1 + std::abs(moved))});
        }
        CHECK(worst < 1e-6);
        // If it is mixed alone, the momentum has the same bits, and nothing else changes.
        std::vector<float> mixed = m;
        FlatRange states = range;
        states.first = mixed;
        states.parameters = {};
        adam_step(states, step, isa);
        CHECK(same(mixed, momentum));
        // A gradient that is the next momentum is taken unchanged.
        step.beta1 = 0;
        parameters = p;
        mixed = m;
        states.parameters = parameters;
        adam_step(states, step, isa);
        for (size_t i = 0; i < v.size(); ++i) gradient[i] = v[i] > 0 ? gradient[i] : 0.0F;
        CHECK(mixed == gradient);  // zeros of either sign are equal
    }
}

TEST_CASE("the variance that goes on is moved by the gradient that leads to the next momentum") {
    for (const Isa isa : available())
        for (const int64_t numel : kLengths) {
            const std::vector<float> before = one_bit_numbers(numel, 21),
                                     momentum = one_bit_numbers(numel, 22);
            std::vector<float> variance = one_bit_numbers(numel, 23),
                               fresh = one_bit_numbers(numel, 24);
            for (float& v : variance) v = v * v;
            for (float& v : fresh) v = v * v;
            const std::vector<float> old = fresh;
            const float largest = fresh_variance({numel, before.data(), momentum.data(),
                                                  variance.data(), fresh.data(), 0.75, 0.5, 0.125F},
                                                 isa);
            INFO(isa_name(isa) << ", " << numel);
            double worst = 0, expected = 0;
            for (size_t i = 0; i < old.size(); ++i) {
                const double next = variance[i] > 0 ? momentum[i] : 0;
                const double g = (next - 0.75 * before[i]) * 4;
                const double moved = 0.5 * old[i] + 0.5 * g * g;
                worst = std::max(worst, std::abs(fresh[i] - moved) / (1 + moved));
                if (variance[i] > 0)
                    expected = std::max(expected, (std::sqrt(double{variance[i]}) + 0.125) /
                                                      (std::sqrt(double{fresh[i]}) + 0.125));
            }
            CHECK(worst < 1e-6);
            CHECK(std::abs(largest - expected) <= 1e-6 * expected);
            std::vector<float> scalar = old;
            const float of_scalar =
                fresh_variance({numel, before.data(), momentum.data(), variance.data(),
                                scalar.data(), 0.75, 0.5, 0.125F},
                               Isa::kScalar);
            CHECK(same(scalar, fresh));
            CHECK(of_scalar == largest);
        }
}

TEST_CASE("hosts that moved come together where their mean move leads") {
    for (const Isa isa : available()) {
        const int64_t numel = 77;
        std::vector<float> parameters = one_bit_numbers(numel, 11),
                           meeting = one_bit_numbers(numel, 12);
        std::vector<float> momentum(77, 5.0F), variance = one_bit_numbers(numel, 13), mean(77);
        for (float& v : variance) v = v * v;
        variance[3] = 0;
        const std::vector<float> p = parameters, met = meeting;
        LocalMoves moves{
            numel, parameters.data(), meeting.data(), momentum.data(), variance.data(), 1e-8F,
            0.25F};
        local_moves(moves, mean.data(), isa);
        take_moves(moves, mean.data(), 0.5F, isa);
        INFO(isa_name(isa));
        double worst = 0;
        for (size_t i = 0; i < p.size(); ++i) {
            const bool trained = variance[i] > 0;
            const double denominator = std::sqrt(double{variance[i]}) + 1e-8;
            const double move = (double{p[i]} - double{met[i]}) * denominator;
            worst = std::max(
                {worst, std::abs(double{parameters[i]} - (trained ? p[i] : met[i])),
                 std::abs(momentum[i] - (trained ? -move / 0.5 - 0.25 * met[i] * denominator : 0)) /
                     (1 + std::abs(move) + denominator)});
        }
        CHECK(worst < 1e-5);
        CHECK(same(parameters, meeting));
        // If another rank writes the parameters, only the momentum is taken.
        const std::vector<float> taken = momentum;
        moves.parameters = nullptr;
        meeting = met;
        moves.meeting = meeting.data();
        take_moves(moves, mean.data(), 0.5F, isa);
        CHECK(same(momentum, taken));
    }
}
