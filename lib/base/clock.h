// The seam for time: code that waits or measures takes a Clock, so that tests need not sleep.
#pragma once

#include <chrono>

namespace dslaunch {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
  public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual TimePoint now() const = 0;
    virtual void sleep_for(Duration duration) = 0;
};

class SystemClock final : public Clock {
  public:
    [[nodiscard]] TimePoint now() const override;
    void sleep_for(Duration duration) override;
};

// Moves only when told to, or when somebody sleeps on it.
class FakeClock final : public Clock {
  public:
    [[nodiscard]] TimePoint now() const override { return now_; }
    void sleep_for(Duration duration) override { now_ += duration; }

  private:
    TimePoint now_{};
};

[[nodiscard]] inline double to_milliseconds(Duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace dslaunch
