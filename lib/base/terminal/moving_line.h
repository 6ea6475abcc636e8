// The line of a terminal that moves: it tells how far a long work is, gives way to every other line
// and comes back after it. The owner writes the bytes that are returned here, so that it chooses
// how it waits. Threads: one at a time.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace dslaunch {

// A work that takes longer than the first is shown. Where no line can move, in a pipe, a file or
// the background, a line is written each time the second is over.
inline constexpr std::chrono::seconds kShownAfter{1};
inline constexpr std::chrono::seconds kToldEach{30};

// "12 s" below 100 s, else "0:01:52", hours first.
[[nodiscard]] std::string time_text(double seconds);
// "0:01:52", hours first.
[[nodiscard]] std::string clock_text(double seconds);

// True if FD is a terminal that can erase a line: TERM is neither empty nor dumb.
[[nodiscard]] bool erases_lines(int fd);

// "123", "2.46", without a unit.
[[nodiscard]] std::string rate_number(double per_second);

class MovingLine {
  public:
    explicit MovingLine(int fd);

    // True: FD is a terminal that can erase a line, and this process is in its foreground: a job
    // that a shell has put into the background does not write into the line that the user types.
    [[nodiscard]] bool moves() const;
    // Returns what shows TEXT in place of what is shown: without its last fields, which two blanks
    // part, and at the worst cut, until it has less columns than the terminal. REQUIRES: moves().
    [[nodiscard]] std::string draw(std::string_view text);
    // Returns what makes the line free for other text. Empty: no line is in use, or none moves.
    [[nodiscard]] std::string clear();
    // Returns what shows the last text once more after other text; empty: it is there, or there is
    // none.
    [[nodiscard]] std::string draw_again();
    // Returns what clear() does; nothing comes back from now on.
    [[nodiscard]] std::string end();

  private:
    int fd_;
    bool erases_;
    bool is_drawn_ = false;
    std::string text_;  // empty: the line is not in use
};

// The first COLUMNS of TEXT.
[[nodiscard]] std::string first_columns(std::string_view text, size_t columns);
// TEXT without its last fields, which two blanks part, until it has at most COLUMNS; the first
// field is cut if it is longer.
[[nodiscard]] std::string without_last_fields(std::string_view text, size_t columns);

}  // namespace dslaunch
