// Checks of an error about a user's text: it can be shown unchanged, and the place that it names
// exists.
#pragma once

#include <charconv>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::fuzz {

// Checks that MESSAGE has only lines of printable text.
inline void check_shown(std::string_view message) {
    DSL_CHECK(!message.empty(), "an error without a word");
    for (const char c : message) {
        const auto byte = static_cast<unsigned char>(c);
        DSL_CHECK((byte >= 0x20 && byte != 0x7F) || c == '\n' || c == '\t',
                  "an error shows the byte {:#x} as it is", static_cast<unsigned>(byte));
    }
}

// Calls READ, and checks the error about the input that it may throw.
template <typename Read>
void check_refusal(const Read& read) {
    try {
        read();
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "{}", error.what());
        check_shown(error.what());
    }
}

// Returns the number at the beginning of TEXT, and removes it and the `:` after it. Returns 0 and
// changes nothing if TEXT does not begin so.
inline size_t take_number(std::string_view& text) {
    size_t number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (status != std::errc() || end == text.data() + text.size() || *end != ':') return 0;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
    return number;
}

// Checks that each line of MESSAGE begins with FILE:LINE:COLUMN: and that this place is in TEXT; it
// may be one column after the end of a line. The last line of MESSAGE may be about the whole file.
inline void check_places(std::string_view message, std::string_view file, std::string_view text) {
    std::vector<size_t> line_bytes{0};
    for (const char c : text) c == '\n' ? line_bytes.push_back(0) : void(++line_bytes.back());
    while (!message.empty()) {
        const size_t end = message.find('\n');
        std::string_view line = message.substr(0, end);
        message.remove_prefix(end == std::string_view::npos ? message.size() : end + 1);
        DSL_CHECK(line.starts_with(file) && line.substr(file.size()).starts_with(':'),
                  "an error does not name its file: {}", line);
        line.remove_prefix(file.size() + 1);
        const size_t number = take_number(line);
        if (number == 0 && message.empty()) return;
        DSL_CHECK(number >= 1 && number <= line_bytes.size(), "line {} of {}", number,
                  line_bytes.size());
        const size_t column = take_number(line);
        DSL_CHECK(column >= 1 && column <= line_bytes[number - 1] + 1, "column {} of {}", column,
                  line_bytes[number - 1]);
    }
}

}  // namespace dslaunch::fuzz
