#include "launch/output/line_printer.h"

#include <unistd.h>

#include <utility>

#include "base/screen.h"
#include "base/terminal/moving_line.h"

namespace dslaunch::launch {

LinePrinter::LinePrinter(StandardStreams& streams)
    : streams_(streams),
      stdout_is_terminal_(::isatty(1) == 1),
      stderr_is_terminal_(::isatty(2) == 1),
      has_colours_(takes_colours(2)) {}

std::string LinePrinter::cut_to_width(int fd, std::string text) const {
    const size_t columns = is_terminal(fd) ? terminal_columns(fd) : 0;
    return columns == 0 ? text : first_columns(text, columns - 1);
}

void LinePrinter::note(std::string_view line) {
    std::string text = fitted(line, 2) + "\n";
    streams_.write(2, has_colours_ ? painted(std::move(text)) : text);
}

}  // namespace dslaunch::launch
