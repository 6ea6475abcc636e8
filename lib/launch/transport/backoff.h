// The number and the delays of further attempts at a connection that was dropped early.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace dslaunch::launch {

// An sshd with MaxStartups 10:30:100 drops a third of ten connections that come at once and two
// thirds of sixty. The pauses are 9 s together at most.
inline constexpr int kConnectAttempts = 10;

// The wait after the ATTEMPT-th attempt (from 1): 50 ms doubled each time up to 2 s, each time
// between half of it and all.
[[nodiscard]] inline std::chrono::milliseconds backoff_delay(int attempt) {
    static thread_local std::minstd_rand random{std::random_device{}()};
    const int64_t full = std::min<int64_t>(2000, int64_t{50} << std::clamp(attempt - 1, 0, 10));
    return std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(full / 2, full)(random));
}

}  // namespace dslaunch::launch
