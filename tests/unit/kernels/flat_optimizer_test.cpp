#include "kernels/flat_optimizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernel_numbers.h"
#include "support/catch.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kNeon};

// Returns normal values, mixed with zeros, denormals, infinities and NaN. It has one more element,
// so that tests can begin at a misaligned one.
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

std::span<float> tail(std::vector<float>& values) {
    return std::span(values).subspan(1);
}

struct State {
    std::vector<float> p, m, v, sum, largest;
    double squares = 0;
};

State run_all(int64_t n, int64_t source_count, bool special, Isa isa) {
    State s{values(n, 1, special), values(n, 2, special),
            values(n, 3, false),   {},
            values(n, 4, special), 0};
    for (float& x : s.v) x = std::abs(x);
    for (float& x : s.largest) x = std::abs(x);
    std::vector<std::vector<float>> gradients;
    std::vector<const float*> pointers;
    for (int64_t i = 0; i < source_count; ++i)
        gradients.push_back(values(n, static_cast<unsigned>(10 + i), special));
    for (const auto& g : gradients) pointers.push_back(g.data() + 1);
    const FlatRange range{.numel = n,
                          .gradients = pointers,
                          .gradient_scale = 0.3F,
                          .parameters = tail(s.p),
                          .first = tail(s.m),
                          .second = tail(s.v),
                          .third = tail(s.largest)};
    adam_step(range, {.lr = 1e-2, .weight_decay = 0.1}, isa);
    adam_step(range, {.lr = 1e-2, .step = 2, .amsgrad = true}, isa);
    adam_step(range, {.lr = 1e-2, .eps = 0.1, .bias_correction = false, .eps_inside_sqrt = true},
              isa);
    adam_step(range, {.lr = 1e-2, .weight_decay = 0.1, .decoupled_decay = false, .step = 2}, isa);
    lion_step(range, {.lr = 1e-2, .weight_decay = 0.1}, isa);
    sgd_step(range,
             {.lr = 0.1, .momentum = 0.9, .dampening = 0, .weight_decay = 0.1, .nesterov = true},
             isa);
    for (float& x : s.m) x = std::abs(x);
    adagrad_step(range, {.lr = 1e-2, .lr_decay = 0.1, .weight_decay = 0.1, .step = 3}, isa);
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
                REQUIRE(same(expected.largest, found.largest));
                REQUIRE(same(expected.sum, found.sum));
                REQUIRE((expected.squares == found.squares || std::isnan(expected.squares)));
            }
    }
}

// Each step rounds p a few times: the error is at most 4 * 2^-24 * |p|, plus as much of the update,
// times 50; |p| < 6, lr 1e-2.
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
                adam_step(
                    {.numel = n, .gradients = source, .parameters = p, .first = m, .second = v},
                    {.lr = 1e-2,
                     .weight_decay = 0.1,
                     .decoupled_decay = decoupled,
                     .bias_correction = correction,
                     .step = t});
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
    adam_step({.numel = 1,
               .gradients = source,
               .parameters = {&p, 1},
               .first = {&m, 1},
               .second = {&v, 1}},
              {.lr = 0.125});
    REQUIRE(p == Approx(1.125).epsilon(1e-6));
}

TEST_CASE("a replica without parameters moves the same states as the owner") {
    const std::vector<float> g = values(100, 5, false);
    std::vector<float> p = values(100, 6, false);
    const std::vector<float> before = p;
    std::vector<float> m1(100), v1(100), m2(100), v2(100);
    const float* source[] = {g.data()};
    const AdamStep step{.lr = 0.1, .weight_decay = 0.2, .decoupled_decay = false};
    adam_step({.numel = 100, .gradients = source, .parameters = p, .first = m1, .second = v1},
              step);
    adam_step(
        {.numel = 100, .gradients = source, .decay_parameters = before, .first = m2, .second = v2},
        step);
    REQUIRE(same(m1, m2));
    REQUIRE(same(v1, v2));
}

// A constant gradient 1, momentum 1/2, lr 1: b1 = 1, b2 = 3/2; Nesterov moves by 1 + b/2: exact in
// binary.
TEST_CASE("SGD with Nesterov momentum equals its closed form") {
    float p = 0, b = 99;
    const float g = 1;
    const float* source[] = {&g};
    FlatRange range{.numel = 1, .gradients = source, .parameters = {&p, 1}, .first = {&b, 1}};
    sgd_step(range, {.lr = 1, .momentum = 0.5, .nesterov = true, .first_step = true});
    REQUIRE(b == 1.0F);
    REQUIRE(p == -1.5F);
    sgd_step(range, {.lr = 1, .momentum = 0.5, .nesterov = true});
    REQUIRE(b == 1.5F);
    REQUIRE(p == -1.5F - 1.75F);
    range.first = {};
    sgd_step(range, {.lr = 2, .weight_decay = 1});
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

// A constant gradient of 2 and a sum that starts at 5: 9, then 13. With lr_decay 1, the second rate
// is half of the first.
TEST_CASE("Adagrad equals its closed form") {
    float p = 1, sum = 5;
    const float g = 2;
    const float* source[] = {&g};
    const FlatRange range{
        .numel = 1, .gradients = source, .parameters = {&p, 1}, .first = {&sum, 1}};
    adagrad_step(range, {.lr = 0.75, .lr_decay = 1, .eps = 0, .step = 1});
    REQUIRE(sum == 9.0F);
    REQUIRE(p == 0.5F);
    adagrad_step(range, {.lr = 0.75, .lr_decay = 1, .eps = 0, .step = 2});
    REQUIRE(sum == 13.0F);
    REQUIRE(p == Approx(0.5 - 0.375 * 2 / std::sqrt(13.0)));
}

// lr 1/4 and decay 1/2: p is multiplied by 7/8. The momentum is mixed with beta1 for the step's
// direction, and with beta2 for the momentum that is kept.
TEST_CASE("Lion moves by lr against the sign, not at all at zero, and lets no NaN pass unseen") {
    const LionStep step{.lr = 0.25, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.5};
    struct Row {
        float gradient, momentum, parameter, next_momentum;
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Row& row :
         {Row{3, 0, 0.625F, 0.75F}, Row{-3, 0, 1.125F, -0.75F}, Row{1, -1, 0.875F, -0.5F},
          Row{1, -4, 1.125F, -2.75F}, Row{0, 0, 0.875F, 0}, Row{nan, 0, nan, nan}}) {
        float p = 1, m = row.momentum;
        const float* source[] = {&row.gradient};
        lion_step({.numel = 1, .gradients = source, .parameters = {&p, 1}, .first = {&m, 1}}, step);
        INFO("gradient " << row.gradient << " momentum " << row.momentum);
        REQUIRE((p == row.parameter || (std::isnan(p) && std::isnan(row.parameter))));
        REQUIRE((m == row.next_momentum || (std::isnan(m) && std::isnan(row.next_momentum))));
    }
}

namespace {

// Two million elements, updated in parts of PART elements. With so many elements the 16-bit copy
// bypasses the caches.
struct Large {
    static constexpr int64_t kNumel = (int64_t{2} << 20) + 77;
    std::vector<float> p, m, v;
    std::vector<uint16_t> half;

    Large(int64_t part, DType dtype, size_t misaligned, Isa isa)
        : p(values(kNumel, 1, false)), m(p.size()), v(p.size()), half(p.size() + misaligned) {
        const std::vector<float> g = values(kNumel, 2, false);
        const float* source[] = {g.data()};
        for (int64_t begin = 0; begin < kNumel; begin += part)
            adam_step({.begin = begin,
                       .numel = std::min(part, kNumel - begin),
                       .gradients = source,
                       .gradient_scale = 0.3F,
                       .parameters = p,
                       .half_parameters = std::span(half).subspan(misaligned),
                       .half_dtype = dtype,
                       .first = m,
                       .second = v},
                      {.lr = 1e-2, .weight_decay = 0.1}, isa);
        half.erase(half.begin(), half.begin() + static_cast<std::ptrdiff_t>(misaligned));
    }
};

}  // namespace

TEST_CASE(
    "parts of a shard, and copies past the caches at any alignment, have the bits of the whole") {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        const Large whole(Large::kNumel, dtype, 0, Isa::kScalar);
        std::vector<uint16_t> rounded(whole.p.size());
        to_half(whole.p.data(), rounded.data(), Large::kNumel, dtype, Isa::kScalar);
        rounded.back() = 0;  // one element more than was updated
        REQUIRE(whole.half == rounded);
        for (const Isa isa : kAll) {
            if (!isa_available(isa)) continue;
            for (const int64_t part : {Large::kNumel, int64_t{1'048'576}, int64_t{1'300'001}})
                for (const size_t misaligned : {size_t{0}, size_t{1}, size_t{24}}) {
                    INFO(isa_name(isa) << " parts of " << part << " misaligned " << misaligned);
                    const Large found(part, dtype, misaligned, isa);
                    REQUIRE(same(found.p, whole.p));
                    REQUIRE(same(found.m, whole.m));
                    REQUIRE(same(found.v, whole.v));
                    REQUIRE(found.half == whole.half);
                }
        }
    }
}

TEST_CASE("16-bit gradients are summed as the fp32 numbers that they are") {
    for (const DType dtype : {DType::kBF16, DType::kF16})
        for (const int64_t n : {1, 63, 64, 65, 1000})
            for (const size_t ranks : {size_t{1}, size_t{2}, size_t{3}, size_t{8}}) {
                const auto length = static_cast<size_t>(n);
                std::vector<std::vector<float>> wide;
                std::vector<std::vector<uint16_t>> halves;
                for (size_t r = 0; r < ranks; ++r) {
                    wide.push_back(values(n, static_cast<unsigned>(20 + r), false));
                    halves.emplace_back(length);
                    to_half(wide[r].data(), halves[r].data(), n, dtype, Isa::kScalar);
                    std::ranges::transform(halves[r], wide[r].begin(), [&](uint16_t half) {
                        return static_cast<float>(meaning(half, dtype));
                    });
                }
                std::vector<const float*> wide_sources;
                std::vector<const uint16_t*> half_sources;
                for (const auto& source : wide) wide_sources.push_back(source.data());
                for (const auto& source : halves) half_sources.push_back(source.data());
                const auto update = [&](FlatRange range, Isa isa) {
                    std::vector<float> p = values(n, 1, false), m(length), v(length);
                    range.numel = n;
                    range.gradient_scale = 0.3F;
                    range.parameters = p;
                    range.first = m;
                    range.second = v;
                    adam_step(range, {.lr = 1e-2, .weight_decay = 0.1, .decoupled_decay = false},
                              isa);
                    p.insert(p.end(), v.begin(), v.end());
                    return p;
                };
                const std::vector<float> expected =
                    update({.gradients = wide_sources}, Isa::kScalar);
                for (const Isa isa : kAll) {
                    if (!isa_available(isa)) continue;
                    INFO(isa_name(isa)
                         << " " << dtype_name(dtype) << " n=" << n << " ranks " << ranks);
                    const FlatRange range{.half_gradients = half_sources, .gradient_dtype = dtype};
                    REQUIRE(same(update(range, isa), expected));
                }
            }
}

TEST_CASE("prints the instruction set in use, or why there is none", "[.child]") {
    try {
        std::printf("%s\n", isa_name(isa_in_use()).data());
    } catch (const Error& error) {
        std::printf("%d %s\n", static_cast<int>(error.code()), error.what());
    }
}

namespace {

// Returns the text that the test case above prints if DSL_ISA is VALUE.
std::string printed_under(const std::string& value) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command = fmt::format("{}='{}' '{}' '[.child]'", kIsaVariable, value, self);
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::string text;
    for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get()))
        text += static_cast<char>(c);
    return text;
}

}  // namespace

TEST_CASE("DSL_ISA names the kernels, and a name that cannot be honoured is an error") {
    for (const Isa isa : kAll) {
        const std::string name(isa_name(isa));
        const std::string text = printed_under(name);
        INFO(name << " printed " << text);
        if (isa_available(isa)) {
            REQUIRE(text.find("\n" + name + "\n") != std::string::npos);
        } else {
            REQUIRE(text.find("\n71 DSL_ISA=" + name + ":") != std::string::npos);
        }
    }
    const std::string text = printed_under("AVX2");
    REQUIRE(text.find("\n71 DSL_ISA=AVX2:") != std::string::npos);
    REQUIRE(text.find(" scalar") != std::string::npos);
}

TEST_CASE("what this processor cannot run is told") {
    for (const Isa isa : kAll)
        if (!isa_available(isa))
            test::report_skipped(fmt::format("the kernels of {}", isa_name(isa)),
                                 "this processor or build lacks them");
    REQUIRE(isa_available(Isa::kScalar));
    REQUIRE(isa_available(best_isa()));
}
