// Small text tools shared by parsers and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// In every locale.
[[nodiscard]] constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

[[nodiscard]] std::string_view trim(std::string_view text);
// The pieces between separators; "a,,b" gives three.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
// TEXT with ASCII's capitals as small letters.
[[nodiscard]] std::string lower(std::string_view text);

// "1 host", "3 hosts". REQUIRES: the plural of NOUN has an s more.
[[nodiscard]] std::string counted(int64_t count, std::string_view noun);

// The whole text as a decimal integer; nothing on any other character, overflow or emptiness.
[[nodiscard]] std::optional<int64_t> parse_int(std::string_view text);
[[nodiscard]] std::optional<double> parse_double(std::string_view text);

// Number of single-character insertions, deletions, replacements and neighbour swaps between the
// two.
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to WORD by edit distance, if it is near enough (a third of the length, at
// least 2) to be meant.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> candidates);

// True if NAME fits PATTERN, whose `*` stand for any number of characters.
[[nodiscard]] bool fits_pattern(std::string_view pattern, std::string_view name);

// Length of the valid UTF-8 sequence that starts at I, 0 if there is none.
[[nodiscard]] size_t utf8_length(std::string_view text, size_t i);

// C0 and C1 control characters (escape sequences with them), bytes that are no UTF-8 (C1 to a
// terminal of 8 bits) and marks that turn the direction of writing as visible \xNN, tabs kept: text
// from elsewhere must not drive a terminal, nor read otherwise than it is.
[[nodiscard]] std::string printable(std::string_view text);

// TEXT made printable line by line; the lines after the first are indented by INDENT columns.
// Without a newline at the end.
[[nodiscard]] std::string printable_lines(std::string_view text, size_t indent);

}  // namespace dslaunch
