#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/half_bits.h"
#include "storage/gguf/block_codes.h"
#include "storage/gguf/block_numbers.h"
#include "support/catch.h"
#include "support/skip.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

constexpr GgufForm kBlocks[] = {GgufForm::kQ4_0, GgufForm::kQ4_1, GgufForm::kQ5_0, GgufForm::kQ5_1,
                                GgufForm::kQ8_0, GgufForm::kQ2K,  GgufForm::kQ3K,  GgufForm::kQ4K,
                                GgufForm::kQ5K,  GgufForm::kQ6K};

std::vector<std::byte> quantized(GgufForm form, const std::vector<float>& numbers,
                                 const std::vector<float>& importance = {}) {
    std::vector<std::byte> bytes(static_cast<size_t>(gguf_bytes(form, std::ssize(numbers))));
    gguf_quantize(form, numbers, importance, bytes);
    return bytes;
}

std::vector<float> numbers_of(GgufForm form, const std::vector<std::byte>& bytes) {
    const GgufFormFacts& facts = facts_of(form);
    std::vector<float> numbers(static_cast<size_t>(std::ssize(bytes) / facts.bytes * facts.numel));
    gguf_dequantize(form, bytes, numbers);
    return numbers;
}

double error_of_numbers(const std::vector<float>& a, const std::vector<float>& b,
                        const std::vector<float>& importance = {}) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        sum += (importance.empty() ? 1.0 : static_cast<double>(importance[i])) * off * off;
    }
    return sum;
}

// Numbers of a kind that weights have: a bell with some far outside.
std::vector<float> weights(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::student_t_distribution<float> bell(4);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = 0.02F * bell(random);
    return numbers;
}

// Returns a block of random integers within the bounds of FORM.
BlockCodes random_codes(GgufForm form, std::mt19937& random) {
    const BlockBounds bounds = bounds_of(form);
    const auto in = [&](int low, int high) {
        return static_cast<int16_t>(std::uniform_int_distribution<int>(low, high)(random));
    };
    BlockCodes codes;
    codes.scale = fp16_of(0.25F);
    if (bounds.has_minimum) codes.minimum = fp16_of(0.125F);
    const bool is_long = facts_of(form).numel == kLongBlock;
    const auto groups = static_cast<size_t>(facts_of(form).numel / bounds.group);
    for (size_t g = 0; is_long && g < groups; ++g) {
        codes.scales[g] = in(bounds.scale_min, bounds.scale_max);
        codes.minimums[g] = in(0, bounds.minimum_max);
    }
    for (size_t i = 0; i < static_cast<size_t>(facts_of(form).numel); ++i)
        codes.codes[i] = in(bounds.code_min, bounds.code_max);
    return codes;
}

}  // namespace

TEST_CASE("integers of a block survive packing, and its numbers follow from them") {
    std::mt19937 random(7);
    for (const GgufForm form : kBlocks) {
        INFO(facts_of(form).name);
        const BlockBounds bounds = bounds_of(form);
        const bool is_long = facts_of(form).numel == kLongBlock;
        for (int round = 0; round < 20; ++round) {
            const BlockCodes codes = random_codes(form, random);
            std::vector<std::byte> block(static_cast<size_t>(facts_of(form).bytes), std::byte{255});
            pack_block(form, codes, block.data());
            BlockCodes back;
            unpack_block(form, block.data(), back);
            CHECK(back.scale == codes.scale);
            CHECK(back.minimum == codes.minimum);
            CHECK(back.scales == codes.scales);
            CHECK(back.minimums == codes.minimums);
            CHECK(back.codes == codes.codes);
            const std::vector<float> numbers = numbers_of(form, block);
            for (size_t i = 0; i < numbers.size(); ++i) {
                const size_t g = i / static_cast<size_t>(bounds.group);
                // All factors are powers of two, so that the products are exact.
                const double scale = is_long ? 0.25 * codes.scales[g] : 0.25;
                const double shift = !bounds.has_minimum ? 0
                                     : is_long           ? -0.125 * codes.minimums[g]
                                                         : 0.125;
                CHECK(static_cast<double>(numbers[i]) == scale * codes.codes[i] + shift);
            }
        }
    }
}

TEST_CASE("numbers too small for a scale of 16 bits become zeros") {
    // 1 / scale would be infinite, and its product with 0 no number.
    std::vector<float> numbers(32, 0.0F);
    numbers[3] = 1e-39F;
    std::vector<std::byte> block(static_cast<size_t>(facts_of(GgufForm::kQ8_0).bytes));
    gguf_quantize(GgufForm::kQ8_0, numbers, {}, block);
    CHECK(numbers_of(GgufForm::kQ8_0, block) == std::vector<float>(32, 0.0F));
}

TEST_CASE("the bits of a block are where ggml has them") {
    // The code of element ELEMENT, which is 1 above the lowest one, changes these bytes.
    struct Row {
        GgufForm form;
        size_t element;
        std::vector<size_t> bytes;
    };
    const Row rows[] = {
        {GgufForm::kQ4_0, 17, {3}},           {GgufForm::kQ4_1, 17, {5}},
        {GgufForm::kQ5_0, 17, {7}},           {GgufForm::kQ5_1, 17, {9}},
        {GgufForm::kQ8_0, 17, {19}},          {GgufForm::kQ2K, 200, {16 + 32 + 8}},
        {GgufForm::kQ3K, 200, {32 + 32 + 8}}, {GgufForm::kQ4K, 200, {16 + 96 + 8}},
        {GgufForm::kQ5K, 200, {48 + 96 + 8}}, {GgufForm::kQ6K, 200, {64 + 8}},
    };
    for (const Row& row : rows) {
        INFO(facts_of(row.form).name);
        BlockCodes low;
        low.codes.fill(static_cast<int16_t>(bounds_of(row.form).code_min));
        BlockCodes other = low;
        ++other.codes[row.element];
        std::vector<std::byte> a(static_cast<size_t>(facts_of(row.form).bytes)), b = a;
        pack_block(row.form, low, a.data());
        pack_block(row.form, other, b.data());
        std::vector<size_t> changed;
        for (size_t i = 0; i < a.size(); ++i)
            if (a[i] != b[i]) changed.push_back(i);
        CHECK(changed == row.bytes);
    }
    // The scales of Q4_K: the upper bits of the last ones are in the bytes of the first ones.
    BlockCodes codes;
    codes.scales[7] = 0b110101;
    codes.minimums[7] = 0b100011;
    std::vector<std::byte> block(144);
    pack_block(GgufForm::kQ4K, codes, block.data());
    CHECK(block[4 + 3] == std::byte{0b11000000});
    CHECK(block[4 + 7] == std::byte{0b10000000});
    CHECK(block[4 + 11] == std::byte{0b00110101});
}

TEST_CASE("a search for scales never loses more than plain rounding, with and without importance") {
    for (const GgufForm form : kBlocks) {
        INFO(facts_of(form).name);
        for (unsigned seed = 0; seed < 8; ++seed) {
            const std::vector<float> numbers = weights(512, seed);
            std::vector<std::byte> plain(static_cast<size_t>(gguf_bytes(form, 512)));
            gguf_round(form, numbers, plain);
            const double of_plain = error_of_numbers(numbers, numbers_of(form, plain));
            CHECK(error_of_numbers(numbers, numbers_of(form, quantized(form, numbers))) <=
                  of_plain * (1 + 1e-6));
            std::vector<float> importance(512);
            for (size_t i = 0; i < importance.size(); ++i)
                importance[i] = i % 16 == 0 ? 100.0F : 1.0F;
            const double weighted = error_of_numbers(
                numbers, numbers_of(form, quantized(form, numbers, importance)), importance);
            CHECK(weighted <=
                  error_of_numbers(numbers, numbers_of(form, plain), importance) * (1 + 1e-6));
        }
    }
}

TEST_CASE("the search is worth its time on numbers as weights have them") {
    struct Row {
        GgufForm form;
        double share;  // of the root mean square of plain rounding, at most
    };
    const Row rows[] = {{GgufForm::kQ4_0, 0.98},
                        {GgufForm::kQ2K, 0.82},
                        {GgufForm::kQ3K, 0.96},
                        {GgufForm::kQ4K, 0.92},
                        {GgufForm::kQ6K, 0.95}};
    const std::vector<float> numbers = weights(64 * 256, 3);
    for (const Row& row : rows) {
        std::vector<std::byte> plain(
            static_cast<size_t>(gguf_bytes(row.form, std::ssize(numbers))));
        gguf_round(row.form, numbers, plain);
        const double share = std::sqrt(
            error_of_numbers(numbers, numbers_of(row.form, quantized(row.form, numbers))) /
            error_of_numbers(numbers, numbers_of(row.form, plain)));
        INFO(facts_of(row.form).name << " " << share);
        CHECK(share < row.share);
    }
}

TEST_CASE("errors of plain rounding are within half a step of each group") {
    // Short forms: with the largest magnitude M of a group, the step is M / 8, M / 16 or M / 127; a
    // minimum makes it (high - low) / 15 or / 31. The code at the other end of the range may be cut
    // by one step. fp16 rounds the scale by 2^-11, which moves a number by at most M * 2^-11.
    const std::vector<float> numbers = weights(32 * 100, 5);
    for (const GgufForm form :
         {GgufForm::kQ4_0, GgufForm::kQ4_1, GgufForm::kQ5_0, GgufForm::kQ5_1, GgufForm::kQ8_0}) {
        INFO(facts_of(form).name);
        std::vector<std::byte> plain(static_cast<size_t>(gguf_bytes(form, std::ssize(numbers))));
        gguf_round(form, numbers, plain);
        const std::vector<float> back = numbers_of(form, plain);
        const BlockBounds bounds = bounds_of(form);
        for (size_t g = 0; g < numbers.size(); g += 32) {
            float low = numbers[g], high = numbers[g];
            for (size_t i = g; i < g + 32; ++i) {
                low = std::min(low, numbers[i]);
                high = std::max(high, numbers[i]);
            }
            const float most = std::max(-low, high);
            const float step = form == GgufForm::kQ8_0 ? most / 127
                               : bounds.has_minimum
                                   ? (high - low) / static_cast<float>(bounds.code_max)
                                   : most / static_cast<float>(-bounds.code_min);
            const float cut = bounds.has_minimum || form == GgufForm::kQ8_0 ? 0.5F : 1.0F;
            for (size_t i = g; i < g + 32; ++i)
                CHECK(std::abs(back[i] - numbers[i]) <= cut * step + 2 * most * 0x1p-11F);
        }
    }
}

TEST_CASE("numbers that a form has exactly stay exact, and zeros stay zeros") {
    std::vector<float> numbers(256);
    for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = 0.5F * static_cast<float>(static_cast<int>(i % 16) - 8);
    CHECK(numbers_of(GgufForm::kQ4_0, quantized(GgufForm::kQ4_0, numbers)) == numbers);
    for (const GgufForm form : {GgufForm::kF32, GgufForm::kF16, GgufForm::kBf16})
        CHECK(numbers_of(form, quantized(form, numbers)) == numbers);
    const std::vector<float> zeros(256);
    for (const GgufForm form : kBlocks) {
        INFO(facts_of(form).name);
        CHECK(numbers_of(form, quantized(form, zeros)) == zeros);
        // No importance at all counts as the same importance for all.
        CHECK(quantized(form, numbers, zeros) == quantized(form, numbers));
    }
    // A group in which all numbers are equal, above and below 0.
    for (const float number : {3.0F, -3.0F}) {
        const std::vector<float> equal(256, number);
        for (const GgufForm form : {GgufForm::kQ4_1, GgufForm::kQ5_1})
            CHECK(numbers_of(form, quantized(form, equal)) == equal);
    }
}

TEST_CASE("scales that fp16 does not have are bounded, not infinite") {
    for (const GgufForm form : kBlocks) {
        INFO(facts_of(form).name);
        const std::vector<float> large(256, 1e30F);
        for (const float number : numbers_of(form, quantized(form, large)))
            CHECK(std::isfinite(number));
        const std::vector<float> small(256, 1e-30F);
        for (const float number : numbers_of(form, quantized(form, small)))
            CHECK(std::abs(number) <= 1e-7F);
    }
}

TEST_CASE("the gguf package reads the same numbers from the same blocks") {
    if (std::system("python3 -c 'import gguf' 2>/dev/null") != 0)
        return report_skipped("blocks as the gguf package reads them",
                              "python3 has no package gguf: pip install gguf");
    const TemporaryFolder folder;
    std::mt19937 random(11);
    const std::string script =
        "import sys, numpy as np; from gguf import quants; from gguf.constants import "
        "GGMLQuantizationType as T; t = T(int(sys.argv[1])); n = quants.GGML_QUANT_SIZES[t][1]; "
        "b = np.fromfile(sys.argv[2], dtype=np.uint8).reshape(-1, n); "
        "quants.dequantize(b, t).astype(np.float32).tofile(sys.argv[3])";
    std::vector<GgufForm> forms(std::begin(kBlocks), std::end(kBlocks));
    forms.insert(forms.end(), {GgufForm::kIq4Nl, GgufForm::kIq4Xs, GgufForm::kBf16});
    for (const GgufForm form : forms) {
        INFO(facts_of(form).name);
        std::string bytes(static_cast<size_t>(facts_of(form).bytes * 50), '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        write_file(folder.path() + "/blocks", bytes);
        REQUIRE(std::system(("python3 -W ignore -c '" + script + "' " +
                             std::to_string(static_cast<uint32_t>(form)) + " " + folder.path() +
                             "/blocks " + folder.path() + "/numbers")
                                .c_str()) == 0);
        const std::string expected = content_of(folder.path() + "/numbers");
        std::vector<std::byte> own(bytes.size());
        std::memcpy(own.data(), bytes.data(), bytes.size());
        const std::vector<float> numbers = numbers_of(form, own);
        REQUIRE(expected.size() == numbers.size() * sizeof(float));
        for (size_t i = 0; i < numbers.size(); ++i) {
            float other = 0;
            std::memcpy(&other, expected.data() + i * sizeof other, sizeof other);
            if (std::isnan(other)) {
                CHECK(std::isnan(numbers[i]));
            } else {
                CHECK(std::memcmp(&numbers[i], &other, sizeof other) == 0);
            }
        }
    }
}
