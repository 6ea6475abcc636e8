// Waits for what another thread or process does. Their limit tells a hang and nothing else.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

namespace dslaunch::test {

using Steady = std::chrono::steady_clock;

// A limit that only tells a hang: the machine of a test is not its own.
constexpr int kHangMs = 600'000;
constexpr std::chrono::milliseconds kHangTime{kHangMs};

// DSL_QUIET=1 says that the machine is the test's own: goals in seconds are judged.
inline bool machine_is_ours() {
    return std::getenv("DSL_QUIET") != nullptr;
}
// The limit of a time that has a goal, which it prints: the goal on a machine of one's own, beside
// other work only what tells a hang.
inline double limit_ms(double goal_ms) {
    return machine_is_ours() ? goal_ms : kHangMs;
}

// A look that takes long, as through all of /proc, is repeated less often, so that it takes a fifth
// of a processor at most.
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
