// States in bf16 and 8 bits, on every instruction set that this processor has.
#include "kernels/packing.h"

#include <algorithm>
#include <bit>
#include <chrono>
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

constexpr StatePacking kPackings[] = {StatePacking::kNone, StatePacking::kBf16, StatePacking::kInt8,
                                      StatePacking::kUint8Root};
constexpr int64_t kStatePackingLengths[] = {1, 15, 16, 255, 256, 257, 1000, 4096, 10'001};

// Returns magnitudes over many powers of two, as moments have them. Some are 0.
std::vector<float> moments(int64_t numel, bool squares, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out;
    for (int64_t i = 0; i < numel; ++i) {
        const float value =
            i % 37 == 5 ? 0.0F : std::ldexp(normal(random), -(static_cast<int>(random() % 24)));
        out.push_back(squares ? value * value : value);
    }
    return out;
}

std::vector<std::byte> packed(StatePacking packing, const std::vector<float>& values,
                              uint32_t seed = 1, Isa isa = Isa::kScalar) {
    std::vector<std::byte> out(static_cast<size_t>(packed_bytes(packing, std::ssize(values))));
    pack_state(packing, values, out, seed, isa);
    return out;
}

std::vector<float> unpacked(StatePacking packing, const std::vector<std::byte>& bytes,
                            int64_t numel, Isa isa = Isa::kScalar) {
    std::vector<float> out(static_cast<size_t>(numel));
    unpack_state(packing, bytes, out, isa);
    return out;
}

std::vector<float> there_and_back(StatePacking packing, const std::vector<float>& values,
                                  uint32_t seed = 1) {
    return unpacked(packing, packed(packing, values, seed), std::ssize(values));
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
    return bits;
}

}  // namespace

TEST_CASE("every instruction set packs and unpacks with the scalar reference's bits") {
    for (const StatePacking packing : kPackings)
        for (const int64_t numel : kStatePackingLengths)
            for (const uint32_t seed : {0U, 7U, 0xFFFFFFFFU}) {
                std::vector<float> values =
                    moments(numel, packing == StatePacking::kUint8Root, seed + 1);
                if (numel > 300) {
                    values[260] = std::numeric_limits<float>::infinity();
                    std::fill_n(values.begin(), 256, 0.0F);
                    values[3] = std::numeric_limits<float>::denorm_min();
                }
                const std::vector<std::byte> expected = packed(packing, values, seed);
                const std::vector<uint32_t> back = bits_of(unpacked(packing, expected, numel));
                for (const Isa isa : available()) {
                    INFO(isa_name(isa) << " packing " << static_cast<int>(packing) << " of "
                                       << numel << ", seed " << seed);
                    CHECK(packed(packing, values, seed, isa) == expected);
                    CHECK(bits_of(unpacked(packing, expected, numel, isa)) == back);
                }
            }
}

TEST_CASE("packed lengths are a 16-bit number an element, or a byte and a scale for each 256") {
    CHECK(packed_bytes(StatePacking::kNone, 1000) == 4000);
    CHECK(packed_bytes(StatePacking::kBf16, 1000) == 2000);
    CHECK(packed_bytes(StatePacking::kInt8, 1000) == 1000 + 4 * 4);
    CHECK(packed_bytes(StatePacking::kUint8Root, 1024) == 1024 + 4 * 4);
}

TEST_CASE("no element is further off than its packing promises") {
    for (const uint32_t seed : {1U, 2U, 3U}) {
        const std::vector<float> signed_values = moments(10'001, false, seed);
        const std::vector<float> squares = moments(10'001, true, seed);
        const std::vector<float> bf16 = there_and_back(StatePacking::kBf16, signed_values, seed);
        const std::vector<float> int8 = there_and_back(StatePacking::kInt8, signed_values, seed);
        const std::vector<float> roots = there_and_back(StatePacking::kUint8Root, squares, seed);
        bool within = true;
        for (size_t i = 0; i < signed_values.size(); ++i) {
            const float value = signed_values[i], square = squares[i];
            const float largest = largest_of_block(signed_values, i, kPackedBlockNumel);
            const float largest_square = largest_of_block(squares, i, kPackedBlockNumel);
            within = within && std::fabs(bf16[i] - value) <= std::fabs(value) * 0x1p-7F;
            // The product with the scale is rounded too: this adds at most 2^-22 of the largest.
            within = within && std::fabs(int8[i] - value) <= largest * (1 / 127.0F + 0x1p-22F);
            within = within &&
                     std::fabs(roots[i] - square) <= largest_square * (511 / 65025.0F + 0x1p-22F);
            within = within && (roots[i] > 0) == (square > 0);
        }
        CHECK(within);
    }
}

TEST_CASE("what a code stands for comes back as it was") {
    std::vector<float> linear, squares;
    for (int k = -127; k <= 127; ++k) linear.push_back(0.75F * (static_cast<float>(k) / 127.0F));
    for (int k = 0; k <= 255; ++k)
        squares.push_back(0.75F * (static_cast<float>(k * k) / 65025.0F));
    const std::vector<float> back = there_and_back(StatePacking::kInt8, linear);
    CHECK(back.front() == -0.75F);
    CHECK(back.back() == 0.75F);
    // Dividing by the scale and multiplying by 127 may be off by a few last places. This changes a
    // code by one, but seldom: in about 2^-16 of all cases.
    int tipped = 0;
    for (size_t i = 0; i < linear.size(); ++i) tipped += back[i] == linear[i] ? 0 : 1;
    CHECK(tipped <= 2);
    const std::vector<float> roots = there_and_back(StatePacking::kUint8Root, squares);
    CHECK(roots.back() == 0.75F);
    tipped = 0;
    for (size_t i = 0; i < squares.size(); ++i) tipped += roots[i] == squares[i] ? 0 : 1;
    CHECK(tipped <= 2);
    const std::vector<float> zeros(300, 0.0F);
    for (const StatePacking packing : kPackings) CHECK(there_and_back(packing, zeros) == zeros);
}

TEST_CASE("rounding is unbiased, so that a change of a thousandth a step is kept") {
    constexpr int kDraws = 20'000;
    const std::vector<float> values = {1.0F, 1.00097F, 0.6341F, 0.0931F, 0.50123F};
    for (const StatePacking packing :
         {StatePacking::kBf16, StatePacking::kInt8, StatePacking::kUint8Root}) {
        std::vector<double> sums(values.size(), 0.0);
        for (int draw = 0; draw < kDraws; ++draw) {
            const std::vector<float> back =
                there_and_back(packing, values, static_cast<uint32_t>(draw) * 2654435761U);
            for (size_t i = 0; i < sums.size(); ++i) sums[i] += back[i];
        }
        // A draw has an error below 1/127. The standard error of the mean is 1/254/sqrt(draws) =
        // 2.8e-5; the bound is five times that.
        for (size_t i = 0; i < sums.size(); ++i) {
            INFO("packing " << static_cast<int>(packing) << " of " << values[i]);
            CHECK(std::fabs(sums[i] / kDraws - values[i]) < 1.4e-4);
        }
    }
}

TEST_CASE("what is not finite does not come back as a number") {
    for (const StatePacking packing : kPackings)
        for (const float bad :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> values = moments(600, true, 5);
            values[300] = bad;
            const std::vector<float> back = there_and_back(packing, values);
            CHECK_FALSE(std::isfinite(back[300]));
            // The blocks beside it are finite as before.
            CHECK(std::isfinite(back[255]));
            CHECK(std::isfinite(back[512]));
        }
}

TEST_CASE("bytes are sorted by place and come back") {
    std::mt19937 random(3);
    for (const int64_t element : {2, 4})
        for (const int64_t numel : kStatePackingLengths) {
            std::vector<uint32_t> words(static_cast<size_t>(numel * element + 3) / 4);
            for (uint32_t& word : words) word = static_cast<uint32_t>(random());
            const std::span<const std::byte> values =
                std::as_bytes(std::span(words)).first(static_cast<size_t>(numel * element));
            for (const Isa isa : available()) {
                INFO(isa_name(isa) << " " << numel << " of " << element);
                std::vector<uint32_t> planes_words(words.size()), back_words(words.size());
                const auto planes =
                    std::as_writable_bytes(std::span(planes_words)).first(values.size());
                const auto back =
                    std::as_writable_bytes(std::span(back_words)).first(values.size());
                split_bytes(values, element, planes, isa);
                bool sorted = true;
                for (int64_t i = 0; i < numel; ++i)
                    for (int64_t k = 0; k < element; ++k)
                        sorted = sorted && planes[k * numel + i] == values[i * element + k];
                CHECK(sorted);
                join_bytes(planes, element, back, isa);
                CHECK(std::ranges::equal(back, values));
            }
        }
}
