// Half precision, compared with the compiler's own _Float16; bfloat16, compared with its
// neighbours.
#include "storage/export/floats.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

std::vector<std::byte> bytes_of(const std::vector<uint16_t>& elements) {
    std::vector<std::byte> bytes(2 * elements.size());
    std::memcpy(bytes.data(), elements.data(), bytes.size());
    return bytes;
}

uint16_t narrowed(double value, DType dtype) {
    std::vector<std::byte> out;
    static_cast<void>(from_doubles(std::vector<double>{value}, dtype, out));
    uint16_t bits = 0;
    REQUIRE(out.size() == 2);
    std::memcpy(&bits, out.data(), 2);
    return bits;
}

double widened(uint16_t bits, DType dtype) {
    std::vector<double> values;
    to_doubles(bytes_of({bits}), dtype, values);
    return values.at(0);
}

// Returns doubles with random bits except NaN, so that all exponents occur.
std::vector<double> many_numbers() {
    std::mt19937_64 random(1);
    std::vector<double> numbers = {0.0,
                                   -0.0,
                                   65504,
                                   65519.999,
                                   65520,
                                   -65520,
                                   0x1p-24,
                                   0x1p-25,
                                   0x1.000001p-25,
                                   0x1p-14,
                                   1e300,
                                   -1e300,
                                   1e-300,
                                   std::numeric_limits<double>::infinity()};
    for (int i = 0; i < 200000; ++i) {
        const auto narrow = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (std::isfinite(narrow)) numbers.push_back(narrow);
        // A random half in range. Numbers are taken at and beside the middle between it and its
        // neighbour.
        const auto half = static_cast<uint16_t>(random() % 0x7c00);
        const double middle =
            (widened(half, DType::kF16) + widened(static_cast<uint16_t>(half + 1), DType::kF16)) /
            2;
        for (const double number :
             {middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e9)})
            if (std::isfinite(number)) numbers.push_back(i % 2 == 0 ? number : -number);
    }
    return numbers;
}

}  // namespace

#ifdef __FLT16_MANT_DIG__  // clang 14 has no half for this processor
TEST_CASE("every half is the number that the compiler reads in it, and comes back as it was") {
    for (uint32_t i = 0; i < 0x10000; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        _Float16 reference;
        std::memcpy(&reference, &bits, 2);
        const double number = widened(bits, DType::kF16);
        const auto expected = static_cast<double>(reference);
        if (std::isnan(expected)) {
            if (!std::isnan(number)) FAIL(i);
            continue;
        }
        if (std::bit_cast<uint64_t>(number) != std::bit_cast<uint64_t>(expected)) FAIL(i);
        if (narrowed(number, DType::kF16) != bits) FAIL(i);
    }
}

TEST_CASE("a number is rounded to the half that the compiler rounds it to") {
    for (const double number : many_numbers()) {
        const auto reference = static_cast<_Float16>(number);
        uint16_t expected = 0;
        std::memcpy(&expected, &reference, 2);
        INFO(number);
        if (narrowed(number, DType::kF16) != expected) FAIL(narrowed(number, DType::kF16));
    }
}
#endif

TEST_CASE("a number becomes the bfloat16 that is nearest, of two the even one") {
    for (const double number : many_numbers()) {
        if (!std::isfinite(number) || std::fabs(number) > 3.38e38) continue;
        const uint16_t bits = narrowed(number, DType::kBF16);
        const double chosen = widened(bits, DType::kBF16);
        const double error = std::fabs(chosen - number);
        for (const int step : {-1, 1}) {
            const double other = widened(static_cast<uint16_t>(bits + step), DType::kBF16);
            INFO(number << " " << bits);
            if (std::isnan(other) || std::signbit(other) != std::signbit(number)) continue;
            if (std::fabs(other - number) < error) FAIL("a neighbour is nearer");
            if (std::fabs(other - number) == error && bits % 2 != 0) FAIL("not the even one");
        }
    }
}

TEST_CASE("a NaN keeps its sign and its upper bits, as in PyTorch's conversion to fp16") {
    struct Nan {
        uint32_t fp32;
        uint16_t fp16, bf16;  // fp16: PyTorch 2.11's; its NaN of bf16 differs by processor
    };
    for (const Nan& nan : {Nan{0x7fc00000, 0x7e00, 0x7fc0}, Nan{0xffc00000, 0xfe00, 0xffc0},
                           Nan{0x7f800001, 0x7e00, 0x7fc0}, Nan{0xff800001, 0xfe00, 0xffc0},
                           Nan{0x7fffffff, 0x7fff, 0x7fff}, Nan{0x7fc12345, 0x7e09, 0x7fc1},
                           Nan{0xffc92000, 0xfe49, 0xffc9}, Nan{0x7fa00000, 0x7f00, 0x7fe0}}) {
        const double number = std::bit_cast<float>(nan.fp32);
        CHECK(narrowed(number, DType::kF16) == nan.fp16);
        CHECK(narrowed(number, DType::kBF16) == nan.bf16);
    }
}

TEST_CASE("what would become infinite is told by its index, an infinity is not") {
    std::vector<std::byte> out;
    const double infinity = std::numeric_limits<double>::infinity();
    CHECK(from_doubles(std::vector<double>{1, infinity, 65519, 7e4, 8e4}, DType::kF16, out) == 3);
    CHECK(from_doubles(std::vector<double>{1, infinity, 65519}, DType::kF16, out) == -1);
    CHECK(from_doubles(std::vector<double>{1, 3.4e38, 7e4}, DType::kBF16, out) == 1);
    CHECK(from_doubles(std::vector<double>{1, 3.3e38, 7e4}, DType::kBF16, out) == -1);
    CHECK(from_doubles(std::vector<double>{1e39}, DType::kF32, out) == 0);
}

TEST_CASE("integers are read as numbers") {
    const std::vector<int64_t> wide = {-5, int64_t{1} << 40};
    std::vector<double> values;
    to_doubles(std::as_bytes(std::span(wide)), DType::kI64, values);
    CHECK(values == std::vector<double>{-5, 0x1p40});
    const std::vector<int8_t> narrow = {-128, 127};
    to_doubles(std::as_bytes(std::span(narrow)), DType::kI8, values);
    CHECK(values == std::vector<double>{-128, 127});
}
