// The interface for time: code that waits or measures takes a Clock, so that tests need not sleep.
#pragma once

#include <chrono>

namespace dslaunch {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// A clock that never runs backwards. Any thread may use it.
class Clock {
  public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual TimePoint now() const = 0;
    virtual void sleep_for(Duration duration) = 0;  // blocks this thread
};

// The steady clock of the machine.
class SystemClock final : public Clock {
  public:
    [[nodiscard]] TimePoint now() const override;
    void sleep_for(Duration duration) override;
};

// A clock for tests, which advances only when somebody sleeps on it. One thread.
class FakeClock final : public Clock {
  public:
    [[nodiscard]] TimePoint now() const override { return now_; }
    void sleep_for(Duration duration) override { now_ += duration; }

  private:
    TimePoint now_{};
};

// Returns DURATION in milliseconds, with a fraction.
[[nodiscard]] inline double to_milliseconds(Duration duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace dslaunch
