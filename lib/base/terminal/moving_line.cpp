#include "base/terminal/moving_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/screen.h"
#include "base/text.h"

namespace dslaunch {

namespace {

constexpr std::string_view kErase = "\x1b[J";  // from the cursor to the end of the screen
constexpr size_t kColumnsUnknown = 80;         // if the terminal does not report its width

}  // namespace

bool erases_lines(int fd) {
    const char* const kind = std::getenv("TERM");
    return ::isatty(fd) == 1 && kind != nullptr && *kind != '\0' &&
           std::string_view(kind) != "dumb";
}

std::string clock_text(double seconds) {
    const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string rate_number(double per_second) {
    constexpr double kWhole = 100;
    return per_second >= kWhole ? fmt::format("{:.0f}", per_second)
                                : fmt::format("{:.3g}", per_second);
}

std::string time_text(double seconds) {
    constexpr double kSecondsMax = 100;
    return seconds < kSecondsMax ? fmt::format("{} s", static_cast<int64_t>(seconds))
                                 : clock_text(seconds);
}

std::string first_columns(std::string_view text, size_t columns) {
    size_t end = 0;
    for (size_t used = 0; end < text.size() && used < columns; ++used)
        end += std::max<size_t>(1, utf8_length(text, end));
    return std::string(text.substr(0, end));
}

std::string without_last_fields(std::string_view text, size_t columns) {
    while (columns_of(text) > columns) {
        const size_t end = text.rfind("  ");
        if (end == std::string_view::npos) break;
        text = text.substr(0, end);
    }
    return first_columns(text, columns);
}

MovingLine::MovingLine(int fd) : fd_(fd), erases_(erases_lines(fd)) {}

// Returns true if lines can be redrawn, and this process is in the terminal's foreground process
// group. If FD is not the controlling terminal, tcgetpgrp() fails, and the foreground is not
// checked.
bool MovingLine::moves() const {
    if (!erases_) return false;
    const pid_t foreground = ::tcgetpgrp(fd_);
    return foreground < 0 || foreground == ::getpgrp();
}

// Keeps one column free, since a terminal may begin another line when its last column is filled.
// Leaves the cursor at the beginning of the line. If the terminal becomes narrower and wraps the
// line, a later erase from the cursor on still removes the whole text.
std::string MovingLine::draw(std::string_view text) {
    text_ = text;
    is_drawn_ = true;
    const size_t columns = terminal_columns(fd_);
    const size_t width = columns == 0 ? kColumnsUnknown : columns;
    return fmt::format("\r{}{}\r", without_last_fields(text, width - 1), kErase);
}

// Erases the line even if it is not drawn, since another program may have written into it.
std::string MovingLine::clear() {
    is_drawn_ = false;
    return text_.empty() || !moves() ? std::string() : fmt::format("\r{}", kErase);
}

std::string MovingLine::draw_again() {
    return text_.empty() || is_drawn_ || !moves() ? std::string() : draw(std::string(text_));
}

std::string MovingLine::end() {
    std::string bytes = is_drawn_ ? clear() : std::string();
    text_.clear();
    return bytes;
}

}  // namespace dslaunch
