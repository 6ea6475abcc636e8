// The heap of this program, whose n-th allocation fails when a test says so. The functions are
// where `operator new` is replaced: allocation_failure_test.cpp.
#pragma once

#include <cstdint>

namespace dslaunch::test {

// While it lives, allocations of this thread never fail and are not counted as those of others.
class SpareThread {
  public:
    SpareThread();
    SpareThread(const SpareThread&) = delete;
    SpareThread& operator=(const SpareThread&) = delete;
    ~SpareThread();

  private:
    bool was_spared_;
};

// The N-th allocation from now on fails, of all threads that are not spared; 0: none does.
void fail_allocation(int64_t n);
[[nodiscard]] bool allocation_has_failed();
// Bytes that were alive at once, at most, since the last call of watch_peak(), less those then.
void watch_peak();
[[nodiscard]] int64_t peak_bytes();

}  // namespace dslaunch::test
