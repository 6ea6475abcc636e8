// A process that was stopped (Ctrl-Z, SIGSTOP, a debugger) has heard nobody meanwhile: the others'
// silence counts from the moment it listens again.
#pragma once

#include <chrono>
#include <optional>

namespace dslaunch::launch {

class Attention {
  public:
    // Called whenever the process listens, several times a second. Returns the time for which it
    // has not listened: 0 within kLookMax.
    [[nodiscard]] std::chrono::steady_clock::duration look(
        std::chrono::steady_clock::time_point now) {
        const auto away = now - looked_at_.value_or(now);
        looked_at_ = now;
        return away > kLookMax ? away : away.zero();
    }

  private:
    static constexpr std::chrono::milliseconds kLookMax{2'000};
    std::optional<std::chrono::steady_clock::time_point> looked_at_;
};

}  // namespace dslaunch::launch
