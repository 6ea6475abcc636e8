// The distance of another machine's clock from ours, as one question and its answer tell it. Pure.
#pragma once

#include <chrono>
#include <string>

namespace dslaunch::launch {

// The true difference lies within BOUND of OFFSET.
struct ClockOffset {
    std::chrono::nanoseconds offset{0};  // the host's clock minus this one
    std::chrono::nanoseconds bound{0};
};

// Clocks further apart than this, by more than the bound, are a fault: TLS, logs and file times
// stop making sense.
inline constexpr std::chrono::seconds kClockOffsetMax{2};

// Our clock, since 1970.
[[nodiscard]] std::chrono::nanoseconds wall_clock();

// The offset by one question sent at ASKED and its answer that came at ANSWERED, both by our clock.
[[nodiscard]] ClockOffset clock_offset(std::chrono::nanoseconds asked,
                                       std::chrono::nanoseconds answered,
                                       std::chrono::nanoseconds theirs);

// The fault of that clock, in words; empty when it may be right within kClockOffsetMax.
[[nodiscard]] std::string describe_clock(const ClockOffset& clock);

}  // namespace dslaunch::launch
