// A thread with a stack of fixed size, whatever `ulimit -s` says. The stack is small, for little
// work: a limit on data counts it.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"

namespace dslaunch {

class SmallThread {
  public:
    static constexpr size_t kStackBytes = size_t{512} << 10;

    SmallThread() = default;
    // Runs WORK, which must not throw. Throws Error{kSetup} when the system has no thread left.
    explicit SmallThread(std::function<void()> work, size_t stack_bytes = kStackBytes);
    SmallThread(SmallThread&& other) noexcept
        : thread_(other.thread_), running_(std::exchange(other.running_, false)) {}
    SmallThread& operator=(SmallThread&& other) noexcept {
        join();
        thread_ = other.thread_;
        running_ = std::exchange(other.running_, false);
        return *this;
    }
    // The end of the object joins the thread.
    ~SmallThread() { join(); }

    // Waits until WORK is done; returns at once if no work was begun.
    void join();

  private:
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace dslaunch
