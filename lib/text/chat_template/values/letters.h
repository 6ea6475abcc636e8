// What Python's str knows about characters: blanks, what repr() shows as it is, classes and cases.
// Unicode 14, that of Python 3.11; make_letters.py writes the tables. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

[[nodiscard]] bool is_space_point(uint32_t point);      // str.isspace(), and \s of a pattern
[[nodiscard]] bool is_printable_point(uint32_t point);  // str.isprintable()
[[nodiscard]] bool is_alpha_point(uint32_t point);
[[nodiscard]] bool is_decimal_point(uint32_t point);
[[nodiscard]] bool is_digit_point(uint32_t point);
[[nodiscard]] bool is_numeric_point(uint32_t point);
[[nodiscard]] bool is_lower_point(uint32_t point);
[[nodiscard]] bool is_upper_point(uint32_t point);
// Ends a line for str.splitlines().
[[nodiscard]] bool is_line_end_point(uint32_t point);

// REQUIRES: valid UTF-8. As Python's methods, with texts that grow ("ß" is "SS" in capitals) and
// the Greek sigma at a word's end.
[[nodiscard]] std::string upper_text(std::string_view text);
[[nodiscard]] std::string lower_text(std::string_view text);
[[nodiscard]] std::string capitalized_text(std::string_view text);
[[nodiscard]] std::string swapped_text(std::string_view text);
// str.title(): each word's first letter.
[[nodiscard]] std::string title_text(std::string_view text);

// Without Python's blanks, or without the code points of CHARS, at the sides asked for.
struct StripSides {
    bool left = true;
    bool right = true;
};
[[nodiscard]] std::string_view strip_blanks(std::string_view text, StripSides sides = {});
[[nodiscard]] std::string_view strip_points(std::string_view text, std::string_view chars,
                                            StripSides sides);

}  // namespace dslaunch::text::jinja
