#include "launch/protocol/clock_offset.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::launch {

using std::chrono::nanoseconds;

nanoseconds wall_clock() {
    return std::chrono::duration_cast<nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
}

ClockOffset clock_offset(nanoseconds asked, nanoseconds answered, nanoseconds theirs) {
    const nanoseconds half = (answered - asked) / 2;
    return {theirs - (asked + half), half + nanoseconds(1)};
}

std::string describe_clock(const ClockOffset& clock) {
    const nanoseconds distance = std::max(clock.offset, -clock.offset);
    if (clock.bound < nanoseconds(0) || distance - clock.bound <= kClockOffsetMax) return {};
    const auto seconds = [](nanoseconds time) {
        return std::chrono::duration<double>(time).count();
    };
    return fmt::format(
        "its clock is {:.1f} s {} this machine's (give or take {:.1f} s): times of logs and files "
        "do not compare, and certificates may be refused; set it, as with chrony or ntp",
        seconds(distance), clock.offset.count() > 0 ? "before" : "behind", seconds(clock.bound));
}

}  // namespace dslaunch::launch
