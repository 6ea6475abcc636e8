// Small text tools shared by parsers and messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns true if C is a digit; does not depend on the locale.
[[nodiscard]] constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Returns TEXT without the white space at both ends; a view into TEXT.
[[nodiscard]] std::string_view trim(std::string_view text);
// Returns the pieces between separators: "a,,b" gives three pieces.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
// Returns PARTS in one text, with SEPARATOR between them.
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
// Returns TEXT with ASCII capitals as lower-case letters.
[[nodiscard]] std::string lower(std::string_view text);
// Returns BYTES as hexadecimal digits in lower case, two for each byte.
[[nodiscard]] std::string hex_text(std::span<const std::byte> bytes);
// Returns true if TEXT consists of DIGITS hexadecimal digits in lower case.
[[nodiscard]] bool is_hex_text(std::string_view text, size_t digits);

// Returns "1 host", "3 hosts". REQUIRES: the plural of NOUN is formed by adding an s.
[[nodiscard]] std::string counted(int64_t count, std::string_view noun);

// Reads the whole of TEXT as a decimal integer. Returns nothing if TEXT is empty, contains another
// character, or overflows.
[[nodiscard]] std::optional<int64_t> parse_int(std::string_view text);
// Reads the whole of TEXT as a decimal number. Returns nothing in the same cases as parse_int().
[[nodiscard]] std::optional<double> parse_double(std::string_view text);

// Returns the number of single-character insertions, deletions, replacements and swaps of
// neighbouring characters that turn A into B.
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

// Returns the candidate with the smallest edit distance from WORD; nothing if it is too large to be
// meant: above 2 and above a third of WORD's length, or above half of the longer word's length.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 std::span<const std::string> candidates);

// Returns true if NAME matches PATTERN, in which each `*` stands for any number of characters.
[[nodiscard]] bool fits_pattern(std::string_view pattern, std::string_view name);

// Returns the length of the valid UTF-8 sequence that starts at index I, or 0 if there is none.
[[nodiscard]] size_t utf8_length(std::string_view text, size_t i);

// Appends the code point POINT to TEXT in UTF-8. REQUIRES: POINT < 0x110000.
inline void append_utf8(std::string& text, char32_t point) {
    const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (point < 0x80) return put(point);
    if (point < 0x800) {
        put(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            put(0xE0 | point >> 12);
        } else {
            put(0xF0 | point >> 18);
            put(0x80 | (point >> 12 & 0x3F));
        }
        put(0x80 | (point >> 6 & 0x3F));
    }
    put(0x80 | (point & 0x3F));
}

// Returns TEXT with some characters replaced by \xNN: C0 and C1 control characters, with which
// escape sequences begin; bytes that are not UTF-8, which an 8-bit terminal may read as C1
// characters; and marks that change the direction of writing. Keeps tabs. Text from other programs
// must neither control a terminal nor look different from what it is.
[[nodiscard]] std::string printable(std::string_view text);

// Returns TEXT made printable line by line, without a newline at the end. Lines after the first are
// indented by INDENT columns.
[[nodiscard]] std::string printable_lines(std::string_view text, size_t indent);

}  // namespace dslaunch
