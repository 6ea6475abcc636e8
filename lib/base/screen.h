// Our words on a screen: how wide they are (a character of UTF-8 takes one column), how they fit a
// terminal, and their colours. Any thread.
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

// Returns LINES, messages of ours, as a terminal of WIDTH columns shows them: broken between words,
// further lines four columns in. A line that holds a command alone (`dslaunch …` after blanks) is
// broken outside of quotes and behind a backslash, so that a shell reads what is copied. WIDTH 0:
// LINES as they are.
[[nodiscard]] std::string fitted_to(size_t width, std::string_view lines);

// Returns LINES fitted to the terminal at FD; elsewhere, as in a file that programs read line by
// line, as they are.
[[nodiscard]] std::string fitted(std::string_view lines, int fd);

// True: FD is a terminal that obeys colours, and NO_COLOR (no-color.org) is unset or empty.
[[nodiscard]] bool takes_colours(int fd);

// TEXT with `error:` behind `dslaunch: ` at its beginning in red, `warning:` in yellow.
[[nodiscard]] std::string painted(std::string text);

// Writes LINES, a message of ours without a newline at its end, to stderr: fitted to its terminal
// (text/columns.h), with colours, in one write. May wait for whoever reads stderr.
void print_message(std::string_view lines);

}  // namespace dslaunch
