// The 16-bit side of the flat kernels, on every instruction set that this processor has.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/range.h"
#include "kernel_numbers.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

constexpr DType kHalves[] = {DType::kBF16, DType::kF16};

float fp32(uint32_t bits) {
    return std::bit_cast<float>(bits);
}

// Rounds by the definition of the formats, in fp64: to the nearest multiple of the last place, or
// to the even one of two that are equally near. Numbers are counted from 0 in steps of their last
// place.
uint16_t rounded(float value, DType dtype) {
    const int mantissa_bits = dtype == DType::kBF16 ? 7 : 10;
    const int exponent_min = dtype == DType::kBF16 ? -126 : -14;
    const int infinity = dtype == DType::kBF16 ? 0x7F80 : 0x7C00;
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) {
        const uint32_t upper = std::bit_cast<uint32_t>(value) >> (23 - mantissa_bits);
        const uint32_t mantissa = upper & ((1U << mantissa_bits) - 1);
        return static_cast<uint16_t>(sign | infinity | 1 << (mantissa_bits - 1) |
                                     static_cast<int>(mantissa));
    }
    if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
    if (value == 0) return static_cast<uint16_t>(sign);
    const double magnitude = std::abs(double{value});
    const int exponent = std::max(std::ilogb(magnitude), exponent_min);
    const auto places =
        static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
    const int bits = ((exponent - exponent_min) << mantissa_bits) + places;
    return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

// Returns numbers with random bits. Every second number has an exponent in or around fp16's range.
std::vector<float> random_bits(size_t numel) {
    std::mt19937 random(7);
    std::vector<float> out;
    for (size_t i = 0; i < numel; ++i) {
        const auto bits = static_cast<uint32_t>(random());
        const auto exponent = static_cast<uint32_t>(100 + random() % 46);
        const uint32_t near = (bits & 0x807FFFFFU) | exponent << 23;
        out.push_back(fp32(i % 2 == 0 ? bits : near));
    }
    return out;
}

constexpr uint16_t kGuard = 0xA5A5;

struct Hard {
    uint32_t fp32;
    uint16_t bf16;
    uint16_t fp16;
};

// The results of torch 2.11's `to`, except for bf16's NaN (torch: 0xFFFF), where they are the
// results of the processors' conversions.
constexpr Hard kHard[] = {
    {0x00000000, 0x0000, 0x0000},  // 0
    {0x80000000, 0x8000, 0x8000},  // -0
    {0x00000001, 0x0000, 0x0000},  // smallest subnormal
    {0x00008000, 0x0000, 0x0000},  // half of bf16's smallest: to even
    {0x00008001, 0x0001, 0x0000},  // just over it
    {0x00018000, 0x0002, 0x0000},  // tie to the even neighbour above
    {0x807FFFFF, 0x8080, 0x8000},  // largest subnormal: to the smallest normal bf16
    {0x33000000, 0x3300, 0x0000},  // 2^-25, half of fp16's smallest: to even
    {0x33000001, 0x3300, 0x0001},  // just over it
    {0x33800000, 0x3380, 0x0001},  // 2^-24, fp16's smallest
    {0xB3C00000, 0xB3C0, 0x8002},  // -1.5 * 2^-24: tie to even
    {0x387FC000, 0x3880, 0x03FF},  // largest subnormal fp16
    {0x387FE000, 0x3880, 0x0400},  // tie between it and the smallest normal
    {0x38800000, 0x3880, 0x0400},  // 2^-14
    {0x3F800000, 0x3F80, 0x3C00},  // 1
    {0x3F801000, 0x3F80, 0x3C00},  // fp16 tie to even below
    {0x3F803000, 0x3F80, 0x3C02},  // fp16 tie to even above
    {0x3F803001, 0x3F80, 0x3C02},  //
    {0x3F808000, 0x3F80, 0x3C04},  // bf16 tie to even below
    {0x3F808001, 0x3F81, 0x3C04},  //
    {0x3F818000, 0x3F82, 0x3C0C},  // bf16 tie to even above
    {0x3FFFFFFF, 0x4000, 0x4000},  // carry to the exponent
    {0x477FE000, 0x4780, 0x7BFF},  // 65504, fp16's largest
    {0x477FEFFF, 0x4780, 0x7BFF},  // last one that rounds to it
    {0x477FF000, 0x4780, 0x7C00},  // 65520: infinity in fp16
    {0xC7800000, 0xC780, 0xFC00},  // -65536
    {0x7F7F0000, 0x7F7F, 0x7C00},  // bf16's largest
    {0x7F7F7FFF, 0x7F7F, 0x7C00},  // last one that rounds to it
    {0x7F7F8000, 0x7F80, 0x7C00},  // infinity in bf16
    {0xFF7FFFFF, 0xFF80, 0xFC00},  // -largest fp32
    {0x7F800000, 0x7F80, 0x7C00},  // infinity
    {0xFF800000, 0xFF80, 0xFC00},  // -infinity
    {0x7FC00000, 0x7FC0, 0x7E00},  // NaN
    {0xFFFFFFFF, 0xFFFF, 0xFFFF},  // NaN with every bit
    {0x7F800001, 0x7FC0, 0x7E00},  // signalling NaN whose payload is lost
};

// Converts PART of HALVES to fp32 the way a step reads 16-bit gradients: WIDE gets the momentum's
// first value.
void widen(Range part, const std::vector<uint16_t>& halves, std::vector<float>& wide, DType dtype,
           Isa isa) {
    const uint16_t* const source = halves.data();
    sgd_step({.begin = part.begin,
              .numel = part.numel,
              .half_gradients = {&source, 1},
              .gradient_dtype = dtype,
              .first = wide},
             {.momentum = 0.5, .first_step = true}, isa);
}

}  // namespace

TEST_CASE("hard cases round as in torch") {
    for (const Isa isa : available())
        for (const Hard& row : kHard) {
            INFO(isa_name(isa) << std::hex << " 0x" << row.fp32);
            // Nine elements: one whole vector of the conversion and a rest.
            const std::vector<float> values(9, fp32(row.fp32));
            std::vector<uint16_t> bf16(9), fp16(9);
            to_half(values.data(), bf16.data(), 9, DType::kBF16, isa);
            to_half(values.data(), fp16.data(), 9, DType::kF16, isa);
            REQUIRE(bf16 == std::vector<uint16_t>(9, row.bf16));
            REQUIRE(fp16 == std::vector<uint16_t>(9, row.fp16));
        }
}

TEST_CASE("random bit patterns round to the nearest 16-bit number") {
    constexpr size_t kNumel = 2'000'003;
    const std::vector<float> values = random_bits(kNumel);
    for (const DType dtype : kHalves) {
        std::vector<uint16_t> expected;
        for (const float value : values) expected.push_back(rounded(value, dtype));
        for (const Isa isa : available()) {
            std::vector<uint16_t> found(kNumel + 1, kGuard);
            to_half(values.data(), found.data(), int64_t{kNumel}, dtype, isa);
            INFO(isa_name(isa) << " " << dtype_name(dtype));
            REQUIRE(found[kNumel] == kGuard);
            for (size_t i = 0; i < kNumel; ++i)
                if (found[i] != expected[i]) {
                    INFO(std::hex << "0x" << std::bit_cast<uint32_t>(values[i]));
                    REQUIRE(found[i] == expected[i]);
                }
        }
    }
}

TEST_CASE("every 16-bit number widens exactly and comes back") {
    constexpr size_t kAll = 65536;
    std::vector<uint16_t> halves(kAll);
    for (size_t i = 0; i < kAll; ++i) halves[i] = static_cast<uint16_t>(i);
    for (const Isa isa : available())
        for (const DType dtype : kHalves) {
            INFO(isa_name(isa) << " " << dtype_name(dtype));
            std::vector<float> wide(kAll);
            // The second call starts at an element that does not begin a vector, and both calls
            // have a rest.
            widen({0, 1003}, halves, wide, dtype, isa);
            widen({1003, kAll - 1003}, halves, wide, dtype, isa);
            std::vector<uint16_t> back(kAll);
            to_half(wide.data(), back.data(), kAll, dtype, isa);
            const int quiet = dtype == DType::kBF16 ? 0x40 : 0x200;
            for (size_t i = 0; i < kAll; ++i) {
                const double expected = meaning(halves[i], dtype);
                const bool nan = std::isnan(expected);
                const bool right = nan ? std::isnan(wide[i]) : double{wide[i]} == expected;
                const int bits = halves[i] | (nan ? quiet : 0);
                if (right && back[i] == bits) continue;
                INFO("bits " << i << ", " << wide[i] << " for " << expected);
                REQUIRE(right);
                REQUIRE(back[i] == bits);
            }
        }
}

namespace {

struct Trained {
    std::vector<float> parameters, momentum, variance;
    std::vector<uint16_t> half;  // one more element before and after, kGuard
};

enum class Rule { kAdam, kAdamL2, kSgd, kAdagrad, kLion };

template <typename T>
std::span<T> tail(std::vector<T>& values) {
    return std::span(values).subspan(1);
}

// Makes two steps over NUMEL elements that are not aligned to a vector, with a 16-bit copy if DTYPE
// is a 16-bit type.
Trained train(Rule rule, int64_t numel, size_t source_count, DType dtype, Isa isa) {
    const auto length = static_cast<size_t>(numel) + 1;
    Trained t{random_bits(length), std::vector<float>(length), std::vector<float>(length),
              std::vector<uint16_t>(length + 1, kGuard)};
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> gradients(source_count, std::vector<float>(length));
    std::vector<const float*> sources;
    for (std::vector<float>& gradient : gradients) {
        for (float& x : gradient) x = normal(random);
        sources.push_back(gradient.data() + 1);
    }
    const bool copies = dtype != DType::kF32;
    const FlatRange range{.numel = numel,
                          .gradients = sources,
                          .gradient_scale = 0.3F,
                          .parameters = tail(t.parameters),
                          .half_parameters = copies ? tail(t.half) : std::span<uint16_t>(),
                          .half_dtype = copies ? dtype : DType::kBF16,
                          .first = tail(t.momentum),
                          .second = tail(t.variance)};
    for (int64_t step = 1; step <= 2; ++step) {
        if (rule == Rule::kSgd)
            sgd_step(range, {.lr = 0.1, .momentum = 0.9, .first_step = step == 1}, isa);
        else if (rule == Rule::kAdagrad)
            adagrad_step(range, {.lr = 1e-2, .step = step}, isa);
        else if (rule == Rule::kLion)
            lion_step(range, {.lr = 1e-2, .weight_decay = 0.1}, isa);
        else
            adam_step(range,
                      {.lr = 1e-2,
                       .weight_decay = 0.1,
                       .decoupled_decay = rule == Rule::kAdam,
                       .step = step},
                      isa);
    }
    return t;
}

}  // namespace

TEST_CASE("a half copy is the rounded parameter and changes nothing else") {
    for (const Isa isa : available())
        for (const Rule rule :
             {Rule::kAdam, Rule::kAdamL2, Rule::kSgd, Rule::kAdagrad, Rule::kLion})
            for (const int64_t numel : {0, 1, 7, 8, 33, 1023, 1024, 1025, 4099})
                for (const size_t sources : {1, 2, 3, 5, 8}) {
                    const Trained plain = train(rule, numel, sources, DType::kF32, isa);
                    for (const DType dtype : kHalves) {
                        const Trained found = train(rule, numel, sources, dtype, isa);
                        INFO(isa_name(isa) << " " << dtype_name(dtype) << " numel=" << numel
                                           << " sources=" << sources);
                        REQUIRE(same(plain.parameters, found.parameters));
                        REQUIRE(same(plain.momentum, found.momentum));
                        REQUIRE(same(plain.variance, found.variance));
                        REQUIRE(found.half.front() == kGuard);
                        REQUIRE(found.half.back() == kGuard);
                        std::vector<uint16_t> expected{kGuard};
                        for (size_t i = 1; i < found.parameters.size(); ++i)
                            expected.push_back(rounded(found.parameters[i], dtype));
                        expected.push_back(kGuard);
                        REQUIRE(found.half == expected);
                    }
                }
}

// The scale is not a power of two, so a fused multiply-add would round at another place.
TEST_CASE("an accumulated sum has the bits of a sum and an addition") {
    for (const Isa isa : available())
        for (const int64_t numel : {0, 1, 17, 1024, 1025, 4099})
            for (size_t source_count = 1; source_count <= 8; ++source_count) {
                const auto length = static_cast<size_t>(numel) + 1;
                std::mt19937 random(static_cast<unsigned>(source_count));
                std::normal_distribution<float> normal;
                std::vector<std::vector<float>> values(source_count + 1,
                                                       std::vector<float>(length));
                for (std::vector<float>& buffer : values)
                    for (float& x : buffer) x = normal(random);
                std::vector<const float*> sources;
                for (size_t s = 0; s < source_count; ++s) sources.push_back(values[s].data() + 1);
                std::vector<float> into = values.back(), expected = into, sum(length);
                ordered_sum(sources, 0.3F, sum.data() + 1, numel, Isa::kScalar);
                for (size_t i = 1; i < length; ++i) expected[i] += sum[i];
                accumulate_sum(sources, 0.3F, into.data() + 1, numel, isa);
                INFO(isa_name(isa) << " numel=" << numel << " sources=" << source_count);
                REQUIRE(same(into, expected));
            }
}

TEST_CASE("one overflowed fp16 gradient makes the sum of squares not finite") {
    constexpr int64_t kNumel = 37;
    for (const Isa isa : available())
        for (int64_t where = 0; where < kNumel; ++where)
            for (const uint16_t bad : std::to_array<uint16_t>({0x7C00, 0xFC00, 0x7E00})) {
                std::vector<uint16_t> gradients(kNumel, 0x7BFF);  // 65504
                std::vector<float> wide(kNumel);
                widen({0, kNumel}, gradients, wide, DType::kF16, isa);
                REQUIRE(sum_of_squares(wide.data(), kNumel, isa) == 37 * 65504.0 * 65504.0);
                gradients[where] = bad;
                widen({0, kNumel}, gradients, wide, DType::kF16, isa);
                REQUIRE_FALSE(std::isfinite(sum_of_squares(wide.data(), kNumel, isa)));
            }
}

TEST_CASE("16-bit arrays are summed in fp32, in order, and rounded once") {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const Isa isa : available())
        for (const DType dtype : kHalves)
            for (const size_t source_count : {1U, 2U, 3U, 5U})
                for (const int64_t numel : {0, 1, 63, 64, 65, 1000}) {
                    const auto length = static_cast<size_t>(numel);
                    std::vector<std::vector<uint16_t>> halves(source_count);
                    std::vector<float> total(length), next(length);
                    std::vector<const uint16_t*> sources;
                    for (size_t s = 0; s < source_count; ++s) {
                        for (size_t i = 0; i < length; ++i)
                            halves[s].push_back(rounded(normal(random), dtype));
                        sources.push_back(halves[s].data());
                        for (size_t i = 0; i < length; ++i) {
                            next[i] = static_cast<float>(meaning(halves[s][i], dtype));
                            total[i] = s == 0 ? next[i] : total[i] + next[i];
                        }
                    }
                    std::vector<uint16_t> expected, out(length);
                    for (const float value : total) expected.push_back(rounded(value, dtype));
                    ordered_half_sum(sources, out.data(), numel, dtype, isa);
                    INFO(isa_name(isa) << " numel=" << numel << " sources=" << source_count);
                    REQUIRE(out == expected);
                }
}
