// Recognizes a signal that only repeats the signal before it. GNU timeout sends SIGTERM to its
// child and then to the child's process group, so the child gets it twice. Pure; no threads.
#pragma once

#include <chrono>
#include <csignal>

namespace dslaunch {

// Equal signals that arrive within this time of each other count as one request to end.
inline constexpr std::chrono::milliseconds kSameSignalMax{1'000};

// The signals of one process, in the order of their arrival.
class SignalRepeats {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // Takes note of the signal NUMBER, which arrived at NOW. Returns true if it is the same request
    // as the signal before it. CODE: the field si_code. A Ctrl-C from a terminal is a request of
    // its own each time: a user presses it twice to end a program at once.
    [[nodiscard]] bool repeats(int number, int code, Time now) {
        const bool by_hand = number == SIGINT && code != SI_USER;
        if (!by_hand && number == number_ && now - at_ < kSameSignalMax) return true;
        number_ = number;
        at_ = now;
        return false;
    }

  private:
    int number_ = 0;
    Time at_;
};

}  // namespace dslaunch
