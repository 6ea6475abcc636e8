// Follows a child process of `dslaunch tune` until it ends or must end. The child writes lines for
// this program and messages for the user. Data path: child -> [here] -> forecasts, trial. One
// thread: the caller's, which waits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace dslaunch::launcher {

// A running child, in a process group of its own.
struct WatchedChild {
    pid_t pid = -1;
    UniqueFd lines;     // the read end of a pipe
    UniqueFd messages;  // the read end of its stderr
};

// The reason why a child ended: by itself, because ON_LINE asked for it, at the time limit, or
// because a signal to this process asks for the end.
enum class ChildEnd { kItself, kAsked, kTimeOver, kInterrupted };

// The end of a child.
struct ChildResult {
    ChildEnd end = ChildEnd::kItself;
    int exit_code = 0;     // the exit code that a shell shows
    std::string messages;  // the last 64 KiB of its stderr
};

// Passes each line of CHILD to ON_LINE until ON_LINE returns false, the child ends, DEADLINE passes
// or a signal is pending at SIGNAL_FD. The signal stays pending. Then sends SIGTERM to the child,
// and SIGKILL to its group if it takes longer than kEndMax to end. Returns when the child has
// ended.
inline constexpr std::chrono::seconds kEndMax{20};
[[nodiscard]] ChildResult watch(WatchedChild child,
                                const std::function<bool(std::string_view line)>& on_line,
                                std::chrono::steady_clock::time_point deadline, int signal_fd);

// Returns the cause of a failure from a program's MESSAGES, on one line: its last error, or else
// its last line.
[[nodiscard]] std::string cause_of(const std::string& messages);

}  // namespace dslaunch::launcher
