// A thread for small tasks. Its stack is small and has a fixed size, whatever `ulimit -s` says,
// because a limit on data (RLIMIT_DATA) counts the whole stack.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"

namespace dslaunch {

// A thread with a small stack; a default-constructed object has no thread. An exception that leaves
// the thread's function ends the program.
class SmallThread {
  public:
    static constexpr size_t kStackBytes = size_t{512} << 10;

    SmallThread() = default;
    // Starts a thread that runs WORK, which must not throw. Throws Error{kSetup} if the system
    // cannot start another thread.
    explicit SmallThread(std::function<void()> work, size_t stack_bytes = kStackBytes);
    SmallThread(SmallThread&& other) noexcept
        : thread_(other.thread_), is_running_(std::exchange(other.is_running_, false)) {}
    SmallThread& operator=(SmallThread&& other) noexcept {
        join();
        thread_ = other.thread_;
        is_running_ = std::exchange(other.is_running_, false);
        return *this;
    }
    // Destroying the object joins the thread.
    ~SmallThread() { join(); }

    // Waits until WORK has returned; returns at once if no work was started.
    void join();

  private:
    pthread_t thread_{};
    bool is_running_ = false;
};

}  // namespace dslaunch
