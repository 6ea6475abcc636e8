// The time for which this process could not receive anything. Pure.
#pragma once

#include <chrono>
#include <optional>

namespace dslaunch::launch {

// The attention of a process to its peers. A process that was stopped (Ctrl-Z, SIGSTOP, a debugger)
// could not receive anything meanwhile, so the others' silence counts only from the moment it runs
// again.
class Attention {
  public:
    // Call this in each turn of the loop that receives, more often than once in kLookMax. Returns
    // the time since the last call if it is longer than kLookMax, else 0.
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
