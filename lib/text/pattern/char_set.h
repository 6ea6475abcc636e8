// A set of code points: bits for ASCII, bits for the classes of unicode/code_points.h, and ranges
// of others. Made once, then only read.
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

struct CharRange {
    char32_t first = 0;
    char32_t last = 0;
    bool operator==(const CharRange&) const = default;
};

class CharSet {
  public:
    void add(char32_t first, char32_t last);
    // Adds all code points whose flags are WANTED.
    void add_classes(const std::function<bool(uint32_t flags)>& wanted);
    void negate();

    [[nodiscard]] bool has_ascii(char32_t point) const { return ascii_[point]; }
    // REQUIRES: INDEX is a class's.
    [[nodiscard]] bool has_class(size_t index) const { return classes_[index]; }
    // Ranges beyond ASCII, to which the bits of classes do not apply.
    [[nodiscard]] const std::vector<CharRange>& ranges() const { return ranges_; }
    [[nodiscard]] bool has(char32_t point) const;
    bool operator==(const CharSet&) const = default;
    // Returns true if it is known that no code point is in both.
    [[nodiscard]] bool is_disjoint(const CharSet& other) const;

  private:
    std::array<bool, 128> ascii_{};
    std::array<bool, 256> classes_{};
    std::vector<CharRange> ranges_;
    bool ranges_are_in_ = true;
};

// Returns a test of a code point's flags: it is in the general category, or group of categories,
// NAME ("L", "Lu", "Letter"); nothing if NAME is unknown.
[[nodiscard]] std::optional<std::function<bool(uint32_t)>> category_named(std::string_view name);
// Returns the code points of the script NAME; empty if it is not known here.
[[nodiscard]] std::vector<CharRange> script_named(std::string_view name);
// Returns all code points for which WANTED is true, as ranges. REQUIRES: WANTED is the same for all
// code points of a class from U+2100 on.
[[nodiscard]] std::vector<CharRange> ranges_of(const std::function<bool(char32_t)>& wanted);
// Returns Oniguruma's \w; only outside a class it has six numbers of Latin-1 (²).
[[nodiscard]] bool is_word_point(char32_t point);
[[nodiscard]] bool is_word_point_in_class(char32_t point);

}  // namespace dslaunch::text
