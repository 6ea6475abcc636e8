// Rounds weights to codes of 2 to 8 bits. Weights of a row are rounded in groups, each with a scale
// and, if the form has one, a minimum. Data path: a folder's weights -> [here], or compensation.h
// -> packed_tensors.h. Threads: pure functions, except for the team that a caller passes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "kernels/thread_team.h"

namespace dslaunch::compress {

// The form of a rounded weight.
struct RoundingForm {
    int bits = 8;               // of a code, 2 to 8
    bool is_float = false;      // codes are the 8-bit floats of base/float8.h
    bool has_minimum = false;   // a group stores its code for 0; false: this code is 2^(bits - 1)
    int64_t group = 0;          // consecutive weights of a row that share a scale; 0: the row
    bool searches = false;      // true: finds the scale of least squared error, which may clip
    DType scale = DType::kF32;  // type in which scales are stored: kF32, kBF16 or kF16

    bool operator==(const RoundingForm&) const = default;
};

// The scale of a group, as it is stored, and the code that stands for 0.
struct GroupScale {
    float scale = 1;
    int zero = 0;
};

// A rounded matrix. A code stands for the number `(code - zero) * scale`. If the codes are 8-bit
// floats, a code stands for its float times the scale.
struct RoundedMatrix {
    int64_t out = 0, in = 0;
    RoundingForm form;
    std::vector<uint8_t> codes;      // [out, in]
    std::vector<GroupScale> scales;  // [out, groups()]

    [[nodiscard]] int64_t group() const { return form.group == 0 ? in : form.group; }
    [[nodiscard]] int64_t groups() const { return (in + group() - 1) / group(); }
};

// The least number of weights in a group.
inline constexpr int64_t kLeastGroup = 8;

// The range of numbers that the codes of a group reach. It contains 0.
struct GroupRange {
    float low = 0, high = 0;
};

// Returns the number of weights in a group. The number is WANTED, halved until it divides IN
// evenly. If WANTED is 0 or the number would be less than kLeastGroup, returns 0: a row is one
// group.
[[nodiscard]] int64_t fitting_group(int64_t wanted, int64_t in);

// Returns the scale for a group's NUMBERS. If FORM.searches, the scale has the smallest sum of
// squared errors; IMPORTANCE contains the weight of each error (empty: equal weights). Otherwise,
// the error of an integer is at most scale / 2. The error of a float is at most |number| / 16 or
// scale / 1024, whichever is larger. REQUIRES: the numbers are finite.
[[nodiscard]] GroupScale fit_group(const RoundingForm& form, std::span<const float> numbers,
                                   std::span<const float> importance = {});

// fit_group() in two parts: fit_range() returns the range that is the best for NUMBERS, and
// scale_of() returns the scale whose codes reach RANGE. range_of() returns the smallest range that
// contains all NUMBERS; fit_range() never returns a larger one.
[[nodiscard]] GroupRange fit_range(const RoundingForm& form, std::span<const float> numbers,
                                   std::span<const float> importance = {});
[[nodiscard]] GroupScale scale_of(const RoundingForm& form, const GroupRange& range);
[[nodiscard]] GroupRange range_of(std::span<const float> numbers);

// code_of() returns the code whose number is the nearest to NUMBER. number_of() returns the number
// that CODE stands for.
[[nodiscard]] uint8_t code_of(const RoundingForm& form, const GroupScale& scale, float number);
[[nodiscard]] float number_of(const RoundingForm& form, const GroupScale& scale, uint8_t code);

// Rounds each number of a matrix [out, in] to nearest. The result does not depend on the team.
// REQUIRES: the numbers are finite.
[[nodiscard]] RoundedMatrix round_to_nearest(const RoundingForm& form,
                                             std::span<const float> numbers, int64_t out,
                                             kernels::ThreadTeam& team);

// Returns the numbers of MATRIX, [out, in].
[[nodiscard]] std::vector<float> numbers_of(const RoundedMatrix& matrix, kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
