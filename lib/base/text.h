// Small text tools shared by parsers and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns true for a digit, in every locale.
[[nodiscard]] constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

[[nodiscard]] std::string_view trim(std::string_view text);
// Returns the pieces between separators; "a,,b" gives three.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
// Returns TEXT with ASCII's capitals as small letters.
[[nodiscard]] std::string lower(std::string_view text);

// Returns "1 host", "3 hosts". REQUIRES: the plural of NOUN adds an s.
[[nodiscard]] std::string counted(int64_t count, std::string_view noun);

// Reads the whole text as a decimal integer; nothing on any other character, overflow or emptiness.
[[nodiscard]] std::optional<int64_t> parse_int(std::string_view text);
[[nodiscard]] std::optional<double> parse_double(std::string_view text);

// Returns the number of single-character insertions, deletions, replacements and neighbour swaps
// between the two.
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

// Returns the candidate nearest to WORD by edit distance, if it is near enough to be meant (a third
// of the length, at least 2).
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> candidates);

// Returns true if NAME fits PATTERN. Each `*` in PATTERN stands for any number of characters.
[[nodiscard]] bool fits_pattern(std::string_view pattern, std::string_view name);

// Returns the length of the valid UTF-8 sequence that starts at I, or 0.
[[nodiscard]] size_t utf8_length(std::string_view text, size_t i);

// Writes as \xNN the C0 and C1 control characters (and so escape sequences), bytes that are not
// UTF-8 (C1 to a terminal of 8 bits) and marks that turn the direction of writing; keeps tabs.
// Foreign text must neither drive a terminal nor read otherwise than it is.
[[nodiscard]] std::string printable(std::string_view text);

// Returns TEXT made printable line by line, without a newline at the end; lines after the first are
// indented by INDENT columns.
[[nodiscard]] std::string printable_lines(std::string_view text, size_t indent);

}  // namespace dslaunch
