// Lines on the launcher's stdout and stderr, fitted to the terminal. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launch/process/standard_streams.h"

namespace dslaunch::launch {

// Prints lines on stdout (FD 1) and stderr (FD 2). If a descriptor is a terminal, the lines are
// fitted to it.
class LinePrinter {
  public:
    // STREAMS must outlive this object.
    explicit LinePrinter(StandardStreams& streams);

    // Returns true if FD, 1 or 2, is a terminal.
    [[nodiscard]] bool is_terminal(int fd) const {
        return fd == 1 ? stdout_is_terminal_ : stderr_is_terminal_;
    }
    // Returns true if lines on stderr may have colours.
    [[nodiscard]] bool has_colours() const { return has_colours_; }
    // Returns TEXT cut to the width of the terminal at FD. Use it for text that is replaced later:
    // a terminal cannot replace text that takes more than one line.
    [[nodiscard]] std::string cut_to_width(int fd, std::string text) const;
    // Writes one or more lines, without the last newline, as they are.
    void print(int fd, const std::string& line) { streams_.write(fd, line + "\n"); }
    // Writes one or more lines of the launcher itself on stderr. If stderr is a terminal, the lines
    // are wrapped between words at the terminal's width.
    void note(std::string_view line);

    // Return the streams, which keep text that cannot be written now.
    [[nodiscard]] StandardStreams& streams() { return streams_; }
    [[nodiscard]] const StandardStreams& streams() const { return streams_; }

  private:
    StandardStreams& streams_;
    bool stdout_is_terminal_;
    bool stderr_is_terminal_;
    bool has_colours_;
};

}  // namespace dslaunch::launch
