// Text as wide as a terminal or a page: a character of UTF-8 takes one column. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dslaunch {

[[nodiscard]] size_t columns_of(std::string_view text);

// The columns of the terminal at FD; 0: it is none, or does not say.
[[nodiscard]] size_t terminal_columns(int fd);

// Breaks lines between words.
struct Wrap {
    size_t width = 80;
    size_t first = 0;   // columns that stand before the text already
    size_t indent = 0;  // blanks before each further line
};

// TEXT, one line, as lines of at most WRAP.width columns, without a newline at the end. A word that
// is longer stays whole.
[[nodiscard]] std::string wrapped(std::string_view text, const Wrap& wrap);

}  // namespace dslaunch
