// The user at the terminal, whatever stdin and stdout are.
#pragma once

#include <string>

#include "base/fd.h"

namespace dslaunch::launcher {

class Terminal {
  public:
    // Opens /dev/tty. SIGNAL_FD: a signalfd, whose signals end a question. Throws Error{kUsage}:
    // there is none; WHY says what it is needed for.
    Terminal(int signal_fd, const std::string& why);

    // Prints QUESTION and returns the line typed, without its newline. Throws Error{kInterrupted}
    // after a signal or at the end of the input.
    [[nodiscard]] std::string ask(const std::string& question);
    // The same, and what is typed is not shown. The terminal is as before afterwards, whatever
    // happens.
    [[nodiscard]] std::string ask_hidden(const std::string& question);

  private:
    UniqueFd tty_;
    int signal_fd_;
};

}  // namespace dslaunch::launcher
