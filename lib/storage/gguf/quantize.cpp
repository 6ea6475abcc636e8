// Makes blocks from numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/half_bits.h"
#include "base/kinds/half_arrays.h"
#include "storage/gguf/block_codes.h"
#include "storage/gguf/block_numbers.h"
#include "storage/gguf/group_fit.h"

namespace dslaunch::storage {
namespace {

constexpr float kHalfMax = 65504;
constexpr int kRounds = 2;  // rounds of fitting a long block's factors to its integers

// A number that is stored in 16 bits, and its bits.
struct Half {
    uint16_t bits;
    float value;
};

Half half_of(double number) {
    const auto bounded = std::clamp(static_cast<float>(number), -kHalfMax, kHalfMax);
    const uint16_t bits = fp16_of(bounded);
    return {bits, fp32_of_fp16(bits)};
}

// A block with its error.
struct Made {
    BlockCodes codes;
    double error = INFINITY;
};

// The numbers of one block.
struct BlockNumbers {
    const float* numbers;
    const float* importance;
};

NumberGroup group_at(const BlockNumbers& block, const BlockBounds& bounds, size_t g) {
    const auto numel = static_cast<size_t>(bounds.group);
    return {block.numbers + g * numel, block.importance + g * numel, numel};
}

CodeRange range_of(const BlockBounds& bounds) {
    return {static_cast<float>(bounds.code_min), static_cast<float>(bounds.code_max)};
}

GroupFit fit_group(const NumberGroup& group, const BlockBounds& bounds, bool searches,
                   bool is_free) {
    const CodeRange range = range_of(bounds);
    if (bounds.has_minimum)
        return searches ? fit_both(group, range, is_free) : plain_both(group, range, is_free);
    return searches ? fit_scale(group, range) : plain_scale(group, range);
}

Made make_short(const BlockNumbers& block, const BlockBounds& bounds, bool searches) {
    const NumberGroup group = group_at(block, bounds, 0);
    const GroupFit fit = fit_group(group, bounds, searches, /*is_free=*/true);
    const Half scale = half_of(fit.scale), minimum = half_of(-fit.minimum);
    Made made;
    made.codes.scale = scale.bits;
    made.codes.minimum = minimum.bits;
    made.error = write_codes(group, {scale.value, -minimum.value}, range_of(bounds),
                             made.codes.codes.data());
    return made;
}

// Makes a block of Q8_0 as ggml does: the largest number becomes 127, and halves are rounded away
// from zero.
Made make_q8(const BlockNumbers& block) {
    float most = 0;
    for (size_t i = 0; i < kShortBlock; ++i) most = std::max(most, std::abs(block.numbers[i]));
    const float scale = most / 127.0F;
    Made made;
    made.codes.scale = half_of(scale).bits;
    // If the scale becomes 0 in fp16, all numbers of the block become 0.
    const float factor = half_of(scale).value == 0 ? 0 : 1 / scale;
    for (size_t i = 0; i < kShortBlock; ++i)
        made.codes.codes[i] = static_cast<int16_t>(std::round(block.numbers[i] * factor));
    return made;
}

// Makes a long block from the scales and minimums that its groups should have.
class LongBlock {
  public:
    LongBlock(const BlockNumbers& block, const BlockBounds& bounds)
        : block_(block), bounds_(bounds) {}

    [[nodiscard]] Made make(bool searches) {
        const auto groups = static_cast<size_t>(kLongBlock / bounds_.group);
        for (size_t g = 0; g < groups; ++g)
            wanted_[g] = fit_group(group_at(block_, bounds_, g), bounds_, searches, false);
        Made best = with(first_scale(groups), first_minimum(groups), searches);
        for (int i = 0; searches && i < kRounds; ++i) {
            const auto [scale, minimum] = solve(best.codes);
            Made next = with(scale, minimum, true);
            if (!(next.error < best.error)) break;
            best = std::move(next);
        }
        return best;
    }

  private:
    // Returns the unit of the scales. The largest scale is this unit times the last integer of the
    // range.
    [[nodiscard]] double first_scale(size_t groups) const {
        float most = 0;
        for (size_t g = 0; g < groups; ++g)
            if (std::abs(wanted_[g].scale) > std::abs(most)) most = wanted_[g].scale;
        const int end = bounds_.scale_min < 0 ? bounds_.scale_min : bounds_.scale_max;
        return static_cast<double>(most) / end;
    }
    [[nodiscard]] double first_minimum(size_t groups) const {
        float most = 0;
        for (size_t g = 0; g < groups; ++g) most = std::max(most, wanted_[g].minimum);
        return bounds_.minimum_max == 0 ? 0 : static_cast<double>(most) / bounds_.minimum_max;
    }

    // Returns the two integers next to NUMBER / UNIT, limited to [LOW, HIGH]. Unless SEARCHES,
    // returns the nearest integer twice.
    static std::array<int, 2> around(float number, float unit, int low, int high, bool searches) {
        if (unit == 0) return {0, 0};
        const float ratio =
            std::clamp(number / unit, static_cast<float>(low), static_cast<float>(high));
        if (!searches) {
            const int nearest = static_cast<int>(std::lround(ratio));
            return {nearest, nearest};
        }
        return {static_cast<int>(std::floor(ratio)), static_cast<int>(std::ceil(ratio))};
    }

    [[nodiscard]] Made with(double scale, double minimum, bool searches) const {
        const Half s = half_of(scale), m = half_of(minimum);
        Made made;
        made.codes.scale = s.bits;
        made.codes.minimum = m.bits;
        made.error = 0;
        const CodeRange range = range_of(bounds_);
        for (size_t g = 0; g < static_cast<size_t>(kLongBlock / bounds_.group); ++g) {
            const NumberGroup group = group_at(block_, bounds_, g);
            double least = INFINITY;
            GroupFit chosen;
            for (const int scales :
                 around(wanted_[g].scale, s.value, bounds_.scale_min, bounds_.scale_max, searches))
                for (const int minimums :
                     around(wanted_[g].minimum, m.value, 0, bounds_.minimum_max, searches)) {
                    const GroupFit fit{s.value * static_cast<float>(scales),
                                       m.value * static_cast<float>(minimums)};
                    const double error = error_of(group, fit, range);
                    if (!(error < least)) continue;
                    least = error;
                    chosen = fit;
                    made.codes.scales[g] = static_cast<int16_t>(scales);
                    made.codes.minimums[g] = static_cast<int16_t>(minimums);
                }
            made.error +=
                write_codes(group, chosen, range,
                            made.codes.codes.data() + g * static_cast<size_t>(bounds_.group));
        }
        return made;
    }

    // Returns the factors with the least error for given integers.
    [[nodiscard]] std::pair<double, double> solve(const BlockCodes& codes) const {
        double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
        for (size_t i = 0; i < kLongBlock; ++i) {
            const size_t g = i / static_cast<size_t>(bounds_.group);
            const double a = codes.scales[g] * codes.codes[i], b = codes.minimums[g];
            const double w = static_cast<double>(block_.importance[i]);
            const double x = static_cast<double>(block_.numbers[i]);
            aa += w * a * a;
            ab += w * a * b;
            bb += w * b * b;
            ax += w * a * x;
            bx += w * b * x;
        }
        const double det = aa * bb - ab * ab;
        if (det > 1e-12 * aa * bb) {
            const double scale = (ax * bb - ab * bx) / det, minimum = (ab * ax - aa * bx) / det;
            if (minimum >= 0) return {scale, minimum};
        }
        return {aa > 0 ? ax / aa : 0, 0};
    }

    BlockNumbers block_;
    BlockBounds bounds_;
    std::array<GroupFit, 16> wanted_{};
};

Made make_block(GgufForm form, const BlockNumbers& block, bool searches) {
    if (form == GgufForm::kQ8_0) return make_q8(block);
    const BlockBounds bounds = bounds_of(form);
    if (facts_of(form).numel == kShortBlock) return make_short(block, bounds, searches);
    return LongBlock(block, bounds).make(searches);
}

// Returns the importance of the columns of one block, all above 0.
std::array<float, kLongBlock> importance_of(std::span<const float> all, size_t begin,
                                            size_t numel) {
    std::array<float, kLongBlock> own{};
    own.fill(1);
    if (all.empty()) return own;
    double sum = 0;
    for (size_t i = 0; i < numel; ++i) sum += static_cast<double>(all[begin + i]);
    if (!(sum > 0)) return own;
    // Columns without any importance still count a little, so that every fit has one solution.
    const double mean = sum / static_cast<double>(numel);
    for (size_t i = 0; i < numel; ++i)
        own[i] = static_cast<float>(static_cast<double>(all[begin + i]) / mean + 1e-4);
    return own;
}

void write_blocks(GgufForm form, std::span<const float> numbers, std::span<const float> importance,
                  bool searches, std::span<std::byte> out) {
    DSL_CHECK(is_written(form), "form {} is not written", facts_of(form).name);
    DSL_CHECK(std::ssize(out) == gguf_bytes(form, std::ssize(numbers)), "{} bytes for {} numbers",
              out.size(), numbers.size());
    DSL_CHECK(importance.empty() || importance.size() == numbers.size(),
              "importance of {} of {} numbers", importance.size(), numbers.size());
    if (!is_quantized(form)) {
        const DType dtype = form == GgufForm::kF32   ? DType::kF32
                            : form == GgufForm::kF16 ? DType::kF16
                                                     : DType::kBF16;
        from_fp32(numbers.data(), dtype, std::ssize(numbers), out.data());
        return;
    }
    const auto numel = static_cast<size_t>(facts_of(form).numel);
    const auto bytes = static_cast<size_t>(facts_of(form).bytes);
    for (size_t i = 0; i * numel < numbers.size(); ++i) {
        const auto own = importance_of(importance, i * numel, numel);
        const BlockNumbers block{numbers.data() + i * numel, own.data()};
        Made made = make_block(form, block, searches);
        if (searches && form != GgufForm::kQ8_0) {
            Made plain = make_block(form, block, false);
            if (plain.error < made.error) made = std::move(plain);
        }
        pack_block(form, made.codes, out.data() + i * bytes);
    }
}

}  // namespace

bool is_written(GgufForm form) {
    return form != GgufForm::kIq4Nl && form != GgufForm::kIq4Xs && form != GgufForm::kF64;
}

void gguf_quantize(GgufForm form, std::span<const float> numbers, std::span<const float> importance,
                   std::span<std::byte> out) {
    write_blocks(form, numbers, importance, /*searches=*/true, out);
}

void gguf_round(GgufForm form, std::span<const float> numbers, std::span<std::byte> out) {
    write_blocks(form, numbers, {}, /*searches=*/false, out);
}

}  // namespace dslaunch::storage
