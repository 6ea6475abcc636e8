// Characters as Python's str treats them: blanks, characters that repr() shows unchanged, and
// letter case, with the data of utf8proc. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

[[nodiscard]] bool is_space_point(char32_t point);             // str.isspace(), and \s of a pattern
[[nodiscard]] bool is_printable_point(char32_t point);         // str.isprintable()
[[nodiscard]] bool is_letter_point(char32_t point);            // str.isalpha()
[[nodiscard]] bool is_digit_point(char32_t point);             // str.isdigit()
[[nodiscard]] bool is_letter_or_number_point(char32_t point);  // str.isalnum()
[[nodiscard]] bool is_line_end_point(char32_t point);          // ends a line for str.splitlines()

// Do the same as upper(), lower(), capitalize() and title() of Python's str. REQUIRES: TEXT is
// valid UTF-8.
[[nodiscard]] std::string upper_text(std::string_view text);
[[nodiscard]] std::string lower_text(std::string_view text);
[[nodiscard]] std::string capitalized_text(std::string_view text);
[[nodiscard]] std::string title_text(std::string_view text);
// Returns TEXT as Jinja2's filter `title` changes it. Unlike in title_text(), words begin only
// after blanks, `-` and opening brackets.
[[nodiscard]] std::string title_words(std::string_view text);

// The ends of a string at which strip_blanks() and strip_points() remove code points.
struct StripSides {
    bool left = true;
    bool right = true;
};
// Return TEXT without blanks (as in Python) at the ends that SIDES chooses, or without the code
// points in CHARS there. The result points into TEXT.
[[nodiscard]] std::string_view strip_blanks(std::string_view text, StripSides sides = {});
[[nodiscard]] std::string_view strip_points(std::string_view text, std::string_view chars,
                                            StripSides sides);

}  // namespace dslaunch::text::jinja
