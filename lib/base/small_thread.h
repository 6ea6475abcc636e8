// A thread whose stack has a size of its own, whatever `ulimit -s` says. For little work it is
// small: what a limit on data counts of it is kept low.
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

    // Returns when WORK is done; at once where none was begun.
    void join();

  private:
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace dslaunch
