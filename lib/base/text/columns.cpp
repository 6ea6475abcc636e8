#include "base/text/columns.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"

namespace dslaunch {

size_t columns_of(std::string_view text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (c & '\xc0') != '\x80'; }));
}

size_t terminal_columns(int fd) {
    winsize size{};
    return ::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string wrapped(std::string_view text, const Wrap& wrap) {
    std::string lines;
    size_t column = wrap.first;
    bool begins = true;  // no word stands on this line yet
    for (const std::string& word : split(text, ' ')) {
        const size_t columns = columns_of(word);
        if (!begins && column + 1 + columns > wrap.width) {
            lines += '\n' + std::string(wrap.indent, ' ');
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

}  // namespace dslaunch
