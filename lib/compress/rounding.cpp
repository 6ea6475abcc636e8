#include "compress/rounding.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/float8.h"
#include "base/half_bits.h"

namespace dslaunch::compress {
namespace {

constexpr int64_t kRoundingRows = 16;
constexpr size_t kLanes = 8;  // sums that are added side by side

// Rounds to the nearest integer, ties to even, without a library call. REQUIRES: |number| < 2^22.
float rounded(float number) {
    return (number + kWholeShift) - kWholeShift;
}

// Returns the smallest number of TYPE that is not less than SCALE. A smaller scale would make the
// group's range too narrow.
float stored_scale(float scale, DType type) {
    if (type == DType::kF32) return scale;
    if (type == DType::kBF16) return fp32_of_bf16(bf16_above(scale));
    uint16_t half = fp16_of(scale);
    if (fp32_of_fp16(half) < scale) ++half;
    return fp32_of_fp16(half);
}

float largest_code(const RoundingForm& form) {
    return static_cast<float>((1 << form.bits) - 1);
}

// Returns the sum of the squared errors, weighed by IMPORTANCE.
float error_of(const RoundingForm& form, const GroupScale& scale, std::span<const float> numbers,
               std::span<const float> importance) {
    const float inverse = 1 / scale.scale;
    const auto zero = static_cast<float>(scale.zero);
    const float low = -zero, high = largest_code(form) - zero;
    std::array<float, kLanes> sums{};
    const auto add = [&](size_t i, size_t lane) {
        const float code = std::min(std::max(rounded(numbers[i] * inverse), low), high);
        const float error = code * scale.scale - numbers[i];
        sums[lane] += importance.empty() ? error * error : importance[i] * error * error;
    };
    size_t i = 0;
    for (; i + kLanes <= numbers.size(); i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    for (; i < numbers.size(); ++i) add(i, 0);
    float sum = 0;
    for (const float part : sums) sum += part;
    return sum;
}

}  // namespace

int64_t fitting_group(int64_t wanted, int64_t in) {
    for (int64_t group = wanted; group >= kLeastGroup; group /= 2) {
        if (in % group == 0) return group;
        if (group % 2 != 0) break;
    }
    return 0;
}

GroupRange range_of(std::span<const float> numbers) {
    GroupRange range;
    for (const float number : numbers) {
        range.low = std::min(range.low, number);
        range.high = std::max(range.high, number);
    }
    return range;
}

GroupScale scale_of(const RoundingForm& form, const GroupRange& range) {
    const float largest = std::max(-range.low, range.high);
    if (form.is_float) {
        const float scale = stored_scale(largest / kE4m3Max, form.scale);
        return {scale > 0 ? scale : 1, 0};
    }
    const float codes = largest_code(form);
    const float width = form.has_minimum ? range.high - range.low : 2 * largest;
    GroupScale made{stored_scale(width / codes, form.scale), 1 << (form.bits - 1)};
    if (!(made.scale > 0)) made.scale = 1;
    if (form.has_minimum)
        made.zero = static_cast<int>(std::clamp(rounded(-range.low / made.scale), 0.0F, codes));
    return made;
}

GroupRange fit_range(const RoundingForm& form, std::span<const float> numbers,
                     std::span<const float> importance) {
    const GroupRange whole = range_of(numbers);
    if (!form.searches || form.is_float || (whole.low == 0 && whole.high == 0)) return whole;
    GroupRange best = whole;
    float least = error_of(form, scale_of(form, whole), numbers, importance);
    // Tries narrower ranges, which clip the largest numbers. With fewer codes, more clipping lowers
    // the error, so ranges down to a third of the whole are tried.
    const int tries = form.bits <= 3 ? 33 : 20;
    for (int i = 1; i <= tries; ++i) {
        const float part = 1 - 0.02F * static_cast<float>(i);
        const GroupRange tried{whole.low * part, whole.high * part};
        const float error = error_of(form, scale_of(form, tried), numbers, importance);
        if (error >= least) continue;
        least = error;
        best = tried;
    }
    return best;
}

GroupScale fit_group(const RoundingForm& form, std::span<const float> numbers,
                     std::span<const float> importance) {
    return scale_of(form, fit_range(form, numbers, importance));
}

uint8_t code_of(const RoundingForm& form, const GroupScale& scale, float number) {
    const float divided = number / scale.scale;
    if (form.is_float) return e4m3_of(std::clamp(divided, -kE4m3Max, kE4m3Max));
    // Limits the number, because rounded() works only up to 2^22. Numbers above 512 would get the
    // same code as 512 in any case.
    const float near = std::clamp(divided, -512.0F, 512.0F);
    const float code = rounded(near) + static_cast<float>(scale.zero);
    return static_cast<uint8_t>(std::clamp(code, 0.0F, largest_code(form)));
}

float number_of(const RoundingForm& form, const GroupScale& scale, uint8_t code) {
    if (form.is_float) return fp32_of_e4m3(code) * scale.scale;
    return static_cast<float>(static_cast<int>(code) - scale.zero) * scale.scale;
}

RoundedMatrix round_to_nearest(const RoundingForm& form, std::span<const float> numbers,
                               int64_t out, kernels::ThreadTeam& team) {
    RoundedMatrix made{out, std::ssize(numbers) / out, form, {}, {}};
    const int64_t in = made.in, group = made.group(), groups = made.groups();
    DSL_CHECK(in > 0 && in * out == std::ssize(numbers),
              "{} numbers do not form a matrix of {} rows", numbers.size(), out);
    made.codes.resize(numbers.size());
    made.scales.resize(static_cast<size_t>(out * groups));
    team.for_chunks((out + kRoundingRows - 1) / kRoundingRows, [&](int64_t chunk) {
        const int64_t end = std::min(out, (chunk + 1) * kRoundingRows);
        for (int64_t row = chunk * kRoundingRows; row < end; ++row)
            for (int64_t g = 0; g < groups; ++g) {
                const auto begin = static_cast<size_t>(g * group);
                const auto length = static_cast<size_t>(std::min(group, in - g * group));
                const std::span<const float> own =
                    numbers.subspan(static_cast<size_t>(row * in) + begin, length);
                const GroupScale scale = fit_group(form, own);
                made.scales[static_cast<size_t>(row * groups + g)] = scale;
                uint8_t* const codes = made.codes.data() + row * in + g * group;
                for (size_t i = 0; i < length; ++i) codes[i] = code_of(form, scale, own[i]);
            }
    });
    return made;
}

std::vector<float> numbers_of(const RoundedMatrix& matrix, kernels::ThreadTeam& team) {
    std::vector<float> numbers(matrix.codes.size());
    const int64_t in = matrix.in, group = matrix.group(), groups = matrix.groups();
    team.for_chunks((matrix.out + kRoundingRows - 1) / kRoundingRows, [&](int64_t chunk) {
        const int64_t end = std::min(matrix.out, (chunk + 1) * kRoundingRows);
        for (int64_t row = chunk * kRoundingRows; row < end; ++row)
            for (int64_t i = 0; i < in; ++i)
                numbers[static_cast<size_t>(row * in + i)] = number_of(
                    matrix.form, matrix.scales[static_cast<size_t>(row * groups + i / group)],
                    matrix.codes[static_cast<size_t>(row * in + i)]);
    });
    return numbers;
}

}  // namespace dslaunch::compress
