// Rounded weights: the error that a group may have, by closed forms, and the words that the tensors
// of compressed-tensors have.
#include "compress/rounding.h"

#include <cmath>
#include <cstring>
#include <random>

#include "compress/packed_tensors.h"
#include "support/catch.h"
#include "unit/kernels/matrix_numbers.h"

namespace dslaunch::compress {
namespace {

const GroupScale& scale_of(const RoundedMatrix& matrix, int64_t i) {
    const int64_t row = i / matrix.in, group = i % matrix.in / matrix.group();
    return matrix.scales[static_cast<size_t>(row * matrix.groups() + group)];
}

TEST_CASE("no number is rounded by more than half of its group's scale") {
    kernels::ThreadTeam team(2);
    for (const int bits : {2, 3, 4, 8})
        for (const bool has_minimum : {false, true})
            for (const int64_t group : {8, 16, 0})
                for (const DType scale : {DType::kF32, DType::kBF16, DType::kF16}) {
                    const RoundingForm form{bits, false, has_minimum, group, false, scale};
                    // 16 x 5 columns: with groups of 0 and of 8, and one row of large numbers, one
                    // of zeros, and one that is all of one sign.
                    std::vector<float> numbers = test::normal_numbers(5 * 80, 7, 0.05F);
                    for (int64_t i = 0; i < 80; ++i) {
                        numbers[static_cast<size_t>(i)] *= 4096;
                        numbers[static_cast<size_t>(80 + i)] = 0;
                        numbers[static_cast<size_t>(160 + i)] =
                            std::fabs(numbers[static_cast<size_t>(160 + i)]) + 1;
                    }
                    const RoundedMatrix made = round_to_nearest(form, numbers, 5, team);
                    const std::vector<float> values = numbers_of(made, team);
                    for (int64_t i = 0; i < 400; ++i) {
                        INFO(bits << " bits, group " << group << ", number " << i);
                        // The last bits of a quotient may fall on the other side of a half.
                        const float bound = scale_of(made, i).scale / 2 * (1 + 0x1p-15F);
                        CHECK(std::fabs(values[static_cast<size_t>(i)] -
                                        numbers[static_cast<size_t>(i)]) <= bound);
                    }
                }
}

TEST_CASE("an 8-bit float is off by a sixteenth of the number at most") {
    kernels::ThreadTeam team(1);
    const RoundingForm form{8, true, false, 0, false, DType::kF32};
    const std::vector<float> numbers = test::normal_numbers(4 * 50, 3, 0.05F);
    const RoundedMatrix made = round_to_nearest(form, numbers, 4, team);
    const std::vector<float> values = numbers_of(made, team);
    for (int64_t i = 0; i < 200; ++i) {
        const float number = numbers[static_cast<size_t>(i)];
        // 3 bits of mantissa; below 2^-6 of the scale, the unit is 2^-9.
        const float bound = std::max(std::fabs(number) / 16, scale_of(made, i).scale / 1024);
        CHECK(std::fabs(values[static_cast<size_t>(i)] - number) <= bound * (1 + 0x1p-20F));
    }
}

TEST_CASE("the search for a scale never makes the squared error larger") {
    const auto error_with = [](const RoundingForm& form, std::span<const float> numbers) {
        const GroupScale scale = fit_group(form, numbers);
        double error = 0;
        for (const float number : numbers) {
            const double difference = number_of(form, scale, code_of(form, scale, number)) - number;
            error += difference * difference;
        }
        return error;
    };
    double plain_sum = 0, searched_sum = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
        const std::vector<float> numbers = test::normal_numbers(64, seed, 0.05F);
        RoundingForm form{3, false, seed % 2 == 0, 0, false, DType::kBF16};
        const double plain = error_with(form, numbers);
        form.searches = true;
        const double searched = error_with(form, numbers);
        CHECK(searched <= plain * (1 + 1e-5));
        plain_sum += plain;
        searched_sum += searched;
    }
    CHECK(searched_sum < 0.9 * plain_sum);
}

TEST_CASE("a group that does not divide the inputs is halved, or is the row") {
    const int64_t table[][3] = {{128, 576, 64}, {128, 1536, 128}, {64, 96, 32}, {32, 40, 8},
                                {128, 100, 0},  {0, 64, 0},       {24, 36, 12}, {12, 12, 12}};
    for (const auto& [wanted, in, group] : table) CHECK(fitting_group(wanted, in) == group);
}

TEST_CASE("the codes do not depend on the number of threads") {
    const RoundingForm form{4, false, true, 32, true, DType::kF16};
    const std::vector<float> numbers = test::normal_numbers(37 * 64, 1, 0.05F);
    kernels::ThreadTeam one(1), three(3);
    const RoundedMatrix a = round_to_nearest(form, numbers, 37, one);
    const RoundedMatrix b = round_to_nearest(form, numbers, 37, three);
    CHECK(a.codes == b.codes);
    CHECK(numbers_of(a, one) == numbers_of(b, three));
}

std::vector<uint32_t> words_of(const PackedTensor& tensor) {
    std::vector<uint32_t> words(tensor.bytes.size() / 4);
    std::memcpy(words.data(), tensor.bytes.data(), tensor.bytes.size());
    return words;
}

TEST_CASE("codes are packed into words as compressed-tensors packs them") {
    FolderForm form{"int4", {4, false, false, 0, false, DType::kF32}};
    RoundedMatrix matrix{2, 9, form.rounding, {}, {{0.5F, 8}, {2, 8}}};
    for (uint8_t i = 0; i < 18; ++i) matrix.codes.push_back(i % 9);
    std::vector<PackedTensor> tensors = packed_tensors(form, "m.up", matrix);
    REQUIRE(tensors.size() == 3);
    CHECK(tensors[0].entry.name == "m.up.weight_packed");
    CHECK(tensors[0].entry.shape == std::vector<int64_t>{2, 2});
    CHECK(words_of(tensors[0]) == std::vector<uint32_t>{0x76543210, 8, 0x76543210, 8});
    CHECK(tensors[1].entry.name == "m.up.weight_scale");
    CHECK(tensors[1].entry.shape == std::vector<int64_t>{2, 1});
    CHECK(tensors[2].entry.name == "m.up.weight_shape");
    CHECK(words_of(tensors[2]) == std::vector<uint32_t>{2, 0, 9, 0});

    // 32 codes of 3 bits fill three words; the code 5 has its middle bit clear.
    form.rounding = {3, false, false, 0, false, DType::kF32};
    matrix = {1, 32, form.rounding, std::vector<uint8_t>(32, 5), {{1, 4}}};
    CHECK(words_of(packed_tensors(form, "m", matrix)[0]) ==
          std::vector<uint32_t>{0x6DB6DB6D, 0xDB6DB6DB, 0xB6DB6DB6});

    // Zero points are packed over the rows: 9 rows of one group need two words of 4 bits.
    form.rounding = {4, false, true, 0, false, DType::kF32};
    matrix = {9, 8, form.rounding, std::vector<uint8_t>(72, 1), {}};
    for (int i = 0; i < 9; ++i) matrix.scales.push_back({1, 15 - i});
    tensors = packed_tensors(form, "m", matrix);
    REQUIRE(tensors[2].entry.name == "m.weight_zero_point");
    CHECK(tensors[2].entry.shape == std::vector<int64_t>{2, 1});
    CHECK(words_of(tensors[2]) == std::vector<uint32_t>{0x89ABCDEF, 7});
}

}  // namespace
}  // namespace dslaunch::compress
