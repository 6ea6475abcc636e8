// Our words on a screen: how wide they are (a character of UTF-8 takes one column), how they fit a
// terminal, and their colours. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dslaunch {

[[nodiscard]] size_t columns_of(std::string_view text);

// Returns the columns of the terminal at FD; 0: FD is not a terminal, or does not say.
[[nodiscard]] size_t terminal_columns(int fd);

// Breaks lines between words.
struct Wrap {
    size_t width = 80;
    size_t first = 0;   // columns that stand before the text already
    size_t indent = 0;  // blanks before each further line
};

// Breaks TEXT, one line, into lines of at most WRAP.width columns, without a newline at the end. A
// longer word stays whole.
[[nodiscard]] std::string wrapped(std::string_view text, const Wrap& wrap);

// Breaks LINES, messages of ours, between words for a terminal of WIDTH columns and indents further
// lines by four columns. A line that holds only a command (`dslaunch …` after blanks) is broken
// outside of quotes and after a backslash, so that a shell can read a copy. WIDTH 0: returns LINES
// unchanged.
[[nodiscard]] std::string fitted_to(size_t width, std::string_view lines);

// Returns LINES fitted to the terminal at FD. Elsewhere, as in a file that programs read line by
// line, returns them unchanged.
[[nodiscard]] std::string fitted(std::string_view lines, int fd);

// Returns true if FD is a terminal with colours and NO_COLOR (no-color.org) is unset or empty.
[[nodiscard]] bool takes_colours(int fd);

// Colours `error:` after `dslaunch: ` at the beginning of TEXT red, and `warning:` yellow.
[[nodiscard]] std::string painted(std::string text);

// Writes LINES, a message without a final newline, to stderr in one write: fitted to its terminal
// (text/columns.h), with colours. May wait for whoever reads stderr.
void print_message(std::string_view lines);

}  // namespace dslaunch
