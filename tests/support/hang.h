// Waits for another thread or process. The limit of a wait is long, and is only reached in a hang.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

namespace dslaunch::test {

using Steady = std::chrono::steady_clock;

// A limit that is only reached in a hang, even if other work runs on the test's machine.
constexpr int kHangMs = 600'000;
constexpr std::chrono::milliseconds kHangTime{kHangMs};

// Returns true if DSL_QUIET=1 says that nothing else runs on this machine. Then times are compared
// with their goals.
inline bool machine_is_ours() {
    return std::getenv("DSL_QUIET") != nullptr;
}
// Returns the limit of a time that has a goal: the goal if nothing else runs on this machine,
// otherwise a limit that is only reached in a hang.
inline double limit_ms(double goal_ms) {
    return machine_is_ours() ? goal_ms : kHangMs;
}

// Waits until DONE returns true. If a call of DONE takes long, for example because it reads all of
// /proc, it is repeated less often, so that the calls take at most a fifth of a processor's time.
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
