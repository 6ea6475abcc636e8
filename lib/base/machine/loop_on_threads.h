// A loop that several threads share, for work that blocks or takes long. For loops over numbers,
// kernels/thread_team.h is used instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace dslaunch {

// Calls WORK(i) exactly once for each i below COUNT, on this thread and up to THREADS_MAX - 1
// others. Returns when all calls have returned. WORK must not throw.
template <typename Work>
void loop_on_threads(size_t count, size_t threads_max, const Work& work) {
    std::atomic<size_t> next = 0;
    const auto take = [&] {
        for (size_t i = next++; i < count; i = next++) work(i);
    };
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min(count, threads_max); ++i) others.emplace_back(take);
    take();
}

}  // namespace dslaunch
