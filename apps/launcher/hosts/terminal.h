// The user at the terminal, whatever stdin and stdout are.
#pragma once

#include <string>

#include "base/fd.h"

namespace dslaunch::launcher {

class Terminal {
  public:
    // Opens /dev/tty. SIGNAL_FD is a signalfd, whose signals end a question. Throws Error{kUsage}
    // if there is no terminal; WHY is its use, for the message.
    Terminal(int signal_fd, const std::string& why);

    // Prints QUESTION and returns the line typed, without its newline. Throws Error{kInterrupted}
    // after a signal or at the end of the input.
    [[nodiscard]] std::string ask(const std::string& question);
    // Does the same, without showing the typed text. The terminal's settings are restored in any
    // case.
    [[nodiscard]] std::string ask_hidden(const std::string& question);

  private:
    UniqueFd tty_;
    int signal_fd_;
};

}  // namespace dslaunch::launcher
