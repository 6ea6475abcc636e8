// A terminal line that shows the progress of a long operation. It is erased before other lines are
// written and drawn again after them. The functions return bytes, and the caller writes these to
// the terminal, because callers differ in how they wait for it. Threads: one at a time.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace dslaunch {

// An operation is shown once it has taken longer than kShownAfter. If no line can be redrawn (in a
// pipe, a file or a background process), a new line is written every kToldEach.
inline constexpr std::chrono::seconds kShownAfter{1};
inline constexpr std::chrono::seconds kToldEach{30};

// Returns "12 s" for less than 100 s; otherwise hours, minutes and seconds: "0:01:52".
[[nodiscard]] std::string time_text(double seconds);
// Returns "0:01:52", hours first.
[[nodiscard]] std::string clock_text(double seconds);

// Returns true if FD is a terminal that can erase a line: TERM is neither empty nor dumb.
[[nodiscard]] bool erases_lines(int fd);

// Returns "123" or "2.46", without a unit.
[[nodiscard]] std::string rate_number(double per_second);

// The state of the line at the terminal FD, which must stay open.
class MovingLine {
  public:
    explicit MovingLine(int fd);

    // Returns true if FD is a terminal that can erase a line and this process is in the foreground:
    // a background job must not write into the line that the user types.
    [[nodiscard]] bool moves() const;
    // Returns the bytes that show TEXT in place of the text before it. Text that is too wide for
    // the terminal loses its last fields, which are separated by two blanks. If one field remains
    // and is too wide, it is cut. REQUIRES: moves().
    [[nodiscard]] std::string draw(std::string_view text);
    // Returns the bytes that erase the line, so that other text can be written. Returns nothing
    // before draw(), after end(), or if the line cannot be redrawn.
    [[nodiscard]] std::string clear();
    // Returns the bytes that show the last text again after other text. Returns nothing if the last
    // text is still shown or there is none.
    [[nodiscard]] std::string draw_again();
    // Returns the bytes of clear(); draw_again() shows nothing from now on.
    [[nodiscard]] std::string end();

  private:
    int fd_;
    bool erases_;
    bool is_drawn_ = false;
    std::string text_;  // empty if the line is not in use
};

// Returns the first COLUMNS of TEXT.
[[nodiscard]] std::string first_columns(std::string_view text, size_t columns);
// Shortens TEXT to at most COLUMNS by dropping its last fields. Two blanks separate fields. If the
// first field alone is too wide, it is cut.
[[nodiscard]] std::string without_last_fields(std::string_view text, size_t columns);

}  // namespace dslaunch
