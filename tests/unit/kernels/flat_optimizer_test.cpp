#include "kernels/flat_optimizer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;

namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kNeon};

// Normal values with zeros, denormals, infinities and NaN strewn in; one extra element to misalign
// by.
std::vector<float> values(int64_t numel, unsigned seed, bool special) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(numel) + 1);
    for (float& x : out) x = normal(random);
    if (!special) return out;
    const float rare[] = {0.0F,
                          -0.0F,
                          1e-41F,
                          -3e-45F,
                          std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          3e38F};
    for (size_t i = 0; i < out.size(); ++i)
        if (random() % 5 == 0) out[i] = rare[random() % 7];
    return out;
}

// Equal bits; any NaN equals any other.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i)
        if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 &&
            !(std::isnan(a[i]) && std::isnan(b[i])))
            return false;
    return a.size() == b.size();
}

struct State {
    std::vector<float> p, m, v, sum;
    double squares = 0;
};

State run_all(int64_t n, int64_t source_count, bool special, Isa isa) {
    State s{values(n, 1, special), values(n, 2, special), values(n, 3, false), {}, 0};
    for (float& x : s.v) x = std::abs(x);
    std::vector<std::vector<float>> gradients;
    std::vector<const float*> pointers;
    for (int64_t i = 0; i < source_count; ++i)
        gradients.push_back(values(n, static_cast<unsigned>(10 + i), special));
    for (const auto& g : gradients) pointers.push_back(g.data() + 1);
    const FlatRange range{
        .numel = n, .gradients = pointers, .gradient_scale = 0.3F, .parameters = s.p.data() + 1};
    adam_step(range, {.lr = 1e-2, .weight_decay = 0.1}, s.m.data() + 1, s.v.data() + 1, isa);
    adam_step(range, {.lr = 1e-2, .weight_decay = 0.1, .decoupled_decay = false, .step = 2},
              s.m.data() + 1, s.v.data() + 1, isa);
    sgd_step(range,
             {.lr = 0.1, .momentum = 0.9, .dampening = 0, .weight_decay = 0.1, .nesterov = true},
             s.m.data() + 1, isa);
    s.sum.resize(static_cast<size_t>(n) + 1);
    ordered_sum(pointers, 0.5F, s.sum.data() + 1, n, isa);
    s.squares = sum_of_squares(s.v.data() + 1, n, isa);
    return s;
}

}  // namespace

TEST_CASE("every instruction set equals the scalar reference bit for bit") {
    std::vector<int64_t> sizes{1000, 16411};
    for (int64_t n = 0; n <= 67; ++n) sizes.push_back(n);
    for (const Isa isa : kAll) {
        if (!isa_available(isa)) continue;
        for (const int64_t n : sizes)
            for (int64_t sources = 1; sources <= 8; ++sources) {
                const bool special = sources % 2 == 0;
                const State expected = run_all(n, sources, special, Isa::kScalar);
                const State found = run_all(n, sources, special, isa);
                INFO(isa_name(isa) << " n=" << n << " sources=" << sources);
                REQUIRE(same(expected.p, found.p));
                REQUIRE(same(expected.m, found.m));
                REQUIRE(same(expected.v, found.v));
                REQUIRE(same(expected.sum, found.sum));
                REQUIRE((expected.squares == found.squares || std::isnan(expected.squares)));
            }
    }
}

// Each step rounds p a few times: at most 4 * 2^-24 * |p| plus as much of the update, 50 times
// over; |p| < 6, lr 1e-2.
TEST_CASE("fifty Adam and AdamW steps follow a double-precision reference") {
    for (const bool decoupled : {true, false})
        for (const bool correction : {true, false}) {
            constexpr int64_t n = 257;
            std::vector<float> p = values(n, 1, false);
            std::vector<float> m(n), v(n);
            std::vector<double> rp(p.begin(), p.end()), rm(n), rv(n);
            for (int64_t t = 1; t <= 50; ++t) {
                const std::vector<float> g = values(n, static_cast<unsigned>(100 + t), false);
                const float* source[] = {g.data()};
                adam_step({.numel = n, .gradients = source, .parameters = p.data()},
                          {.lr = 1e-2,
                           .weight_decay = 0.1,
                           .decoupled_decay = decoupled,
                           .bias_correction = correction,
                           .step = t},
                          m.data(), v.data());
                for (size_t i = 0; i < n; ++i) {
                    const double grad = double{g[i]} + (decoupled ? 0 : 0.1 * rp[i]);
                    if (decoupled) rp[i] *= 1 - 1e-2 * 0.1;
                    rm[i] = 0.9 * rm[i] + 0.1 * grad;
                    rv[i] = 0.999 * rv[i] + 0.001 * grad * grad;
                    const double c1 = correction ? 1 - std::pow(0.9, t) : 1;
                    const double c2 = correction ? 1 - std::pow(0.999, t) : 1;
                    rp[i] -= 1e-2 * (rm[i] / c1) / (std::sqrt(rv[i] / c2) + 1e-8);
                }
            }
            for (size_t i = 0; i < n; ++i) REQUIRE(std::abs(p[i] - rp[i]) < 50 * 4 * 6e-8 * 6);
        }
}

TEST_CASE("the first Adam step moves every parameter by lr against the gradient's sign") {
    float p = 1, m = 0, v = 0;
    const float g = -0.25F;
    const float* source[] = {&g};
    adam_step({.numel = 1, .gradients = source, .parameters = &p}, {.lr = 0.125}, &m, &v);
    REQUIRE(p == Approx(1.125).epsilon(1e-6));
}

TEST_CASE("a replica without parameters moves the same states as the owner") {
    const std::vector<float> g = values(100, 5, false);
    std::vector<float> p = values(100, 6, false);
    const std::vector<float> before = p;
    std::vector<float> m1(100), v1(100), m2(100), v2(100);
    const float* source[] = {g.data()};
    const AdamStep step{.lr = 0.1, .weight_decay = 0.2, .decoupled_decay = false};
    adam_step({.numel = 100, .gradients = source, .parameters = p.data()}, step, m1.data(),
              v1.data());
    adam_step({.numel = 100, .gradients = source, .decay_parameters = before.data()}, step,
              m2.data(), v2.data());
    REQUIRE(same(m1, m2));
    REQUIRE(same(v1, v2));
}

// A constant gradient 1, momentum 1/2, lr 1: b1 = 1, b2 = 3/2; Nesterov moves by 1 + b/2: exact in
// binary.
TEST_CASE("SGD with Nesterov momentum equals its closed form") {
    float p = 0, b = 99;
    const float g = 1;
    const float* source[] = {&g};
    const FlatRange range{.numel = 1, .gradients = source, .parameters = &p};
    sgd_step(range, {.lr = 1, .momentum = 0.5, .nesterov = true, .first_step = true}, &b);
    REQUIRE(b == 1.0F);
    REQUIRE(p == -1.5F);
    sgd_step(range, {.lr = 1, .momentum = 0.5, .nesterov = true}, &b);
    REQUIRE(b == 1.5F);
    REQUIRE(p == -1.5F - 1.75F);
    sgd_step(range, {.lr = 2, .weight_decay = 1}, nullptr);
    REQUIRE(p == -3.25F - 2 * (1 - 3.25F));
}

TEST_CASE("sums keep the order of their sources and squares are added in double") {
    const float big = 16777216, one = 1, minus = -16777216;
    const float* forth[] = {&big, &one, &minus};
    const float* back[] = {&big, &minus, &one};
    float out = 9;
    ordered_sum(forth, 1, &out, 1);
    REQUIRE(out == 0.0F);
    ordered_sum(back, 1, &out, 1);
    REQUIRE(out == 1.0F);
    const std::vector<float> ones(40000, 1e20F);
    REQUIRE(sum_of_squares(ones.data(), 40000) == Approx(4e44));
}
