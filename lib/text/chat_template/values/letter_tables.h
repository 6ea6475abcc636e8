// The tables behind letters.h, for code points above ASCII. make_letters.py writes their contents.
#pragma once

#include <cstdint>
#include <span>

namespace dslaunch::text::jinja {

// The code points FIRST, FIRST + STRIDE, … LAST.
struct PointRange {
    uint32_t first, last, stride;
};
// Those code points become others by adding DELTA.
struct PointShift {
    uint32_t first, last, stride;
    int32_t delta;
};
// A code point that becomes a text of several.
struct PointText {
    uint32_t point;
    const char* text;
};

// Each in ascending order.
struct LetterTables {
    std::span<const PointRange> unprintable, alpha, decimal, digit, numeric, lower, upper;
    std::span<const PointRange> case_ignorable;
    std::span<const PointShift> upper_shifts;
    std::span<const PointText> upper_texts;
    std::span<const PointShift> lower_shifts;
    std::span<const PointText> lower_texts;
    std::span<const PointShift> title_shifts;
    std::span<const PointText> title_texts;
};
[[nodiscard]] const LetterTables& letter_tables();

}  // namespace dslaunch::text::jinja
