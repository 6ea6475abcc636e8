// Messages on a screen: how wide they are (each UTF-8 character counts as one column), how they are
// fitted to a terminal, and their colours. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the number of columns that TEXT takes. REQUIRES: TEXT is one line without escape
// sequences.
[[nodiscard]] size_t columns_of(std::string_view text);

// Returns the number of columns of the terminal at FD; 0 if FD is not a terminal or its width is
// unknown.
[[nodiscard]] size_t terminal_columns(int fd);

// The form in which lines are broken between words.
struct Wrap {
    size_t width = 80;
    size_t first = 0;   // columns of the first line that are in use already
    size_t indent = 0;  // blanks before each line after the first
};

// Breaks TEXT into lines of at most WRAP.width columns. The result does not end with a newline. A
// word of more columns is not broken. REQUIRES: TEXT is one line.
[[nodiscard]] std::string wrapped(std::string_view text, const Wrap& wrap);

// Breaks LINES between words to fit a terminal of WIDTH columns. LINES are messages of this
// program. Continuation lines are indented by four columns. A line that holds only a command
// (`dslaunch` after blanks) is broken outside of quotes, and each break is marked by a backslash,
// so that the command can be copied into a shell. If WIDTH is 0, returns LINES unchanged.
[[nodiscard]] std::string fitted_to(size_t width, std::string_view lines);

// Returns LINES fitted to the terminal at FD. If FD is not a terminal, returns LINES unchanged,
// because programs may read them line by line.
[[nodiscard]] std::string fitted(std::string_view lines, int fd);

// Returns true if FD is a terminal that shows colours and NO_COLOR (no-color.org) is unset or
// empty.
[[nodiscard]] bool takes_colours(int fd);

// Returns TEXT with colours: if it begins with `dslaunch: error:`, the word `error:` is red; if it
// begins with `dslaunch: warning:`, the word `warning:` is yellow.
[[nodiscard]] std::string painted(std::string text);

// Writes a message to stderr in one write, fitted to the terminal at stderr, with colours. LINES do
// not end with a newline. May block until stderr is read.
void print_message(std::string_view lines);

}  // namespace dslaunch
