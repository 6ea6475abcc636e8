// A set of code points: bits for the ASCII characters, bits for the classes of
// unicode/code_points.h, and ranges of further code points. Built once, then only read.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/code_points.h"

namespace dslaunch::text {

// The code points from `first` to `last`, including both.
struct CharRange {
    char32_t first = 0;
    char32_t last = 0;
    bool operator==(const CharRange&) const = default;
};

// A set of code points, made by adding and negating.
class CharSet {
  public:
    // Adds the code points from FIRST to LAST, including both.
    void add(char32_t first, char32_t last);
    // Adds all code points for whose flags WANTED returns true.
    void add_classes(const std::function<bool(uint32_t flags)>& wanted);
    // Replaces the set by its complement.
    void negate();

    // Returns true if POINT is in the set. REQUIRES: POINT < 128.
    [[nodiscard]] bool has_ascii(char32_t point) const { return ascii_[point]; }
    // REQUIRES: INDEX is the index of a class.
    [[nodiscard]] bool has_class(size_t index) const { return classes_[index]; }
    // Returns the exceptions to the classes: for a code point in one of these ranges, the bit of
    // its class does not count.
    [[nodiscard]] const std::vector<CharRange>& ranges() const { return ranges_; }
    // Returns true if POINT is in the set.
    [[nodiscard]] bool has(char32_t point) const;
    bool operator==(const CharSet&) const = default;
    // Returns true only if it is certain that no code point is in both sets.
    [[nodiscard]] bool is_disjoint(const CharSet& other) const;

  private:
    std::array<bool, 128> ascii_{};
    std::array<bool, 256> classes_{};
    std::vector<CharRange> ranges_;
    bool ranges_are_in_ = true;
};

// Returns a test for the category NAME, such as "Lu", or for the group of categories NAME, such as
// "L" or "Letter". The test takes the flags of a code point, and returns true if the code point is
// in the category or group. Returns nothing if NAME is unknown.
[[nodiscard]] std::optional<std::function<bool(uint32_t)>> category_named(std::string_view name);
// Returns the code points of the script NAME, or no ranges if the script is not known here.
[[nodiscard]] std::vector<CharRange> script_named(std::string_view name);
// Returns the ranges of all code points for which WANTED returns true. REQUIRES: from U+2100 on,
// WANTED returns the same for any two code points of one class (unicode/code_points.h).
[[nodiscard]] std::vector<CharRange> ranges_of(const std::function<bool(char32_t)>& wanted);
// Return true for the characters of Oniguruma's \w. Outside a character class, these include six
// numbers of Latin-1 (such as ²).
[[nodiscard]] bool is_word_point(char32_t point);
[[nodiscard]] bool is_word_point_in_class(char32_t point);

}  // namespace dslaunch::text
