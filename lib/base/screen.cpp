#include "base/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/text.h"

namespace dslaunch {
namespace {

constexpr size_t kFurtherIndent = 4;  // added to continuation lines

// Returns the words of LINE, which are separated by blanks outside of quotes.
std::vector<std::string> shell_words(std::string_view line) {
    std::vector<std::string> words(1);
    char quote = 0;
    for (const char c : line) {
        if (c == ' ' && quote == 0) {
            words.emplace_back();
            continue;
        }
        if (quote != 0 ? c == quote : c == '\'' || c == '"') quote = quote != 0 ? '\0' : c;
        words.back() += c;
    }
    return words;
}

// Returns the offset of the `dslaunch` command that LINE contains; npos if there is none.
size_t command_in(std::string_view line) {
    constexpr std::string_view kName = "dslaunch ";
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (line.substr(indent).starts_with(kName)) return indent;
    for (const std::string_view lead : {"next: ", "go on with: "}) {
        const size_t place = line.find(std::string(lead) + std::string(kName));
        if (place != line.npos) return place + lead.size();
    }
    return line.npos;
}

// Returns WORDS broken into lines. GOES_ON is appended to each line but the last.
std::string broken(const std::vector<std::string>& words, const Wrap& wrap,
                   std::string_view goes_on) {
    std::string lines;
    size_t column = wrap.first;
    bool begins = true;  // this line has no word yet
    for (const std::string& word : words) {
        const size_t columns = columns_of(word);
        if (!begins && column + 1 + columns + goes_on.size() > wrap.width) {
            lines += fmt::format("{}\n{}", goes_on, std::string(wrap.indent, ' '));
            column = wrap.indent;
            begins = true;
        }
        if (!begins) {
            lines += ' ';
            ++column;
        }
        lines += word;
        column += columns;
        begins = false;
    }
    return lines;
}

// Breaks LINE with backslashes, so that a shell reads it as one command. The command begins at
// BEGIN.
std::string wrapped_command(std::string_view line, size_t begin, size_t width) {
    constexpr std::string_view kGoesOn = " \\";
    const size_t indent = std::min(line.find_first_not_of(' '), line.size()) + kFurtherIndent;
    std::string lines = wrapped(line.substr(0, begin), {.width = width, .indent = indent});
    size_t column = columns_of(lines.substr(lines.rfind('\n') + 1));
    const std::vector<std::string> words = shell_words(line.substr(begin));
    if (column + columns_of(words.front()) + kGoesOn.size() > width && begin > indent) {
        lines.erase(lines.find_last_not_of(' ') + 1);
        lines += "\n" + std::string(indent, ' ');
        column = indent;
    }
    return lines + broken(words, {.width = width, .first = column, .indent = indent}, kGoesOn);
}

std::string fitted_line(size_t width, const std::string& line) {
    if (width <= 2 * kFurtherIndent || columns_of(line) <= width) return line;
    if (const size_t begin = command_in(line); begin != line.npos)
        return wrapped_command(line, begin, width);
    const size_t indent = std::min(line.find_first_not_of(' '), line.size()) + kFurtherIndent;
    return wrapped(line, {.width = width, .indent = indent});
}

}  // namespace

size_t columns_of(std::string_view text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (c & '\xc0') != '\x80'; }));
}

size_t terminal_columns(int fd) {
    winsize size{};
    return ::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string wrapped(std::string_view text, const Wrap& wrap) {
    return broken(split(text, ' '), wrap, "");
}

std::string fitted_to(size_t width, std::string_view lines) {
    if (width == 0) return std::string(lines);
    std::vector<std::string> all = split(lines, '\n');
    for (std::string& line : all) line = fitted_line(width, line);
    return join(all, "\n");
}

std::string fitted(std::string_view lines, int fd) {
    return fitted_to(terminal_columns(fd), lines);
}

bool takes_colours(int fd) {
    const char* none = std::getenv("NO_COLOR");
    const char* kind = std::getenv("TERM");
    return ::isatty(fd) == 1 && (none == nullptr || *none == '\0') && kind != nullptr &&
           std::string_view(kind) != "dumb";
}

std::string painted(std::string text) {
    constexpr std::string_view kName = "dslaunch: ";
    constexpr std::string_view kEnd = "\x1b[0m";
    for (const auto& [word, begin] :
         {std::pair<std::string_view, std::string_view>{"error:", "\x1b[1;31m"},
          {"warning:", "\x1b[33m"}}) {
        if (!text.starts_with(kName) || text.compare(kName.size(), word.size(), word) != 0)
            continue;
        text.insert(kName.size() + word.size(), kEnd);
        text.insert(kName.size(), begin);
        break;
    }
    return text;
}

void print_message(std::string_view lines) {
    std::string text = fitted(lines, 2);
    if (takes_colours(2)) text = painted(std::move(text));
    static_cast<void>(write_full(2, text + "\n"));
}

}  // namespace dslaunch
