// Watches the heap of this program, and lets an allocation fail when a test asks for it. The
// functions are defined in allocation_failure_test.cpp, which replaces `operator new`.
#pragma once

#include <cstdint>

namespace dslaunch::test {

// While this object lives, allocations of its thread never fail, and do not count as allocations of
// other threads.
class SpareThread {
  public:
    SpareThread();
    SpareThread(const SpareThread&) = delete;
    SpareThread& operator=(const SpareThread&) = delete;
    ~SpareThread();

  private:
    bool was_spared_;
};

// Lets the N-th allocation from now on fail, counted over all threads that are not spared; 0: no
// allocation fails.
void fail_allocation(int64_t n);
[[nodiscard]] bool allocation_has_failed();
// peak_bytes() returns the most bytes that were allocated at the same time since watch_peak(), less
// the bytes that were allocated when watch_peak() was called.
void watch_peak();
[[nodiscard]] int64_t peak_bytes();

}  // namespace dslaunch::test
