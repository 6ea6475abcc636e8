// Characters as Python's str knows them: blanks, the characters that repr() shows as they are, and
// cases; as utf8proc has them. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

[[nodiscard]] bool is_space_point(char32_t point);      // str.isspace(), and \s of a pattern
[[nodiscard]] bool is_printable_point(char32_t point);  // str.isprintable()
[[nodiscard]] bool is_line_end_point(char32_t point);   // ends a line for str.splitlines()

// Each does what Python's method does. REQUIRES: valid UTF-8. Throws Fault for a letter whose
// capital is several letters, but for "ß".
[[nodiscard]] std::string upper_text(std::string_view text);
[[nodiscard]] std::string lower_text(std::string_view text);
[[nodiscard]] std::string capitalized_text(std::string_view text);
[[nodiscard]] std::string title_text(std::string_view text);
// Does the filter `title`: words begin after blanks, `-` and opening brackets alone.
[[nodiscard]] std::string title_words(std::string_view text);

// The sides at which Python's blanks, or the code points of CHARS, are taken off.
struct StripSides {
    bool left = true;
    bool right = true;
};
[[nodiscard]] std::string_view strip_blanks(std::string_view text, StripSides sides = {});
[[nodiscard]] std::string_view strip_points(std::string_view text, std::string_view chars,
                                            StripSides sides);

}  // namespace dslaunch::text::jinja
