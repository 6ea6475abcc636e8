// Sleeping on a 32-bit word that processes or threads share. The futexes are not private: the word
// may be in any shared mapping.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace dslaunch::runtime {

// Sleeps while WORD equals EXPECTED, for at most TIME_LIMIT. It may also return early without a
// reason.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Duration time_limit);

// Wakes all threads that sleep on WORD.
void futex_wake_all(std::atomic<uint32_t>& word);

// Pauses briefly between two reads of a word, before the thread sleeps.
inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace dslaunch::runtime
