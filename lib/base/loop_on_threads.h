// A loop that several threads share, for work that waits or takes long; kernels/thread_team.h
// shares loops over numbers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace dslaunch {

// Calls WORK(i) for each i below COUNT, each once, on this thread and up to THREADS_MAX - 1 others.
// Returns when all are done. WORK must not throw.
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
