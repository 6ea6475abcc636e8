// Waits for another thread or process. Its limit only tells a hang.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

namespace dslaunch::test {

using Steady = std::chrono::steady_clock;

// A limit that only tells a hang: other work runs on a test's machine.
constexpr int kHangMs = 600'000;
constexpr std::chrono::milliseconds kHangTime{kHangMs};

// True if DSL_QUIET=1 says that the machine is the test's own: goals in seconds are judged.
inline bool machine_is_ours() {
    return std::getenv("DSL_QUIET") != nullptr;
}
// Returns the limit of a time that has a goal: the goal on a machine of one's own, beside other
// work only a limit that tells a hang.
inline double limit_ms(double goal_ms) {
    return machine_is_ours() ? goal_ms : kHangMs;
}

// Waits until DONE. A look that takes long, such as one through all of /proc, is repeated less
// often, so that it takes at most a fifth of a processor.
inline bool wait_until(const std::function<bool()>& done, int limit_ms = kHangMs) {
    using std::chrono::milliseconds;
    const auto limit = Steady::now() + milliseconds(limit_ms);
    for (;;) {
        const auto began = Steady::now();
        if (done()) return true;
        const auto now = Steady::now();
        if (now > limit) return false;
        std::this_thread::sleep_for(
            std::clamp<Steady::duration>(4 * (now - began), milliseconds(1), milliseconds(20)));
    }
}

}  // namespace dslaunch::test
