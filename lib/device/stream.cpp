#include "device/stream.h"

#include <algorithm>

namespace dslaunch::device {

namespace {

// The longest pause between two checks. The host notices the end of the work up to one pause late.
// Checking ten times in a millisecond costs little.
constexpr Duration kLongestPause = std::chrono::microseconds(100);

}  // namespace

void Pauses::pause() {
    SystemClock().sleep_for(next_);
    next_ = std::min(2 * next_, kLongestPause);
}

bool await_event(Event& event, const AwaitOptions& options) {
    const SystemClock clock;
    const TimePoint begin = clock.now();
    Pauses pauses;
    while (!event.is_reached()) {
        const Duration waited = clock.now() - begin;
        if (waited < options.watch_closely) continue;
        options.check();
        if (waited > options.limit) return false;
        pauses.pause();
    }
    return true;
}

}  // namespace dslaunch::device
