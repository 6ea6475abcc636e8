// A thread for little work has a small stack: what a limit on data counts of it is kept low.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"

namespace dslaunch {

class SmallThread {
  public:
    SmallThread() = default;
    // Runs WORK, which must not throw. Throws Error{kSetup} when the system has no thread left.
    explicit SmallThread(std::function<void()> work);
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
