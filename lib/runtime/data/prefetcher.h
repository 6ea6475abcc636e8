// A thread that makes numbered items before another thread needs them. At most `depth` items are
// ready; then it waits. No LibTorch, so that it runs under tsan with fake items. Threads: one
// thread calls take(); any thread may call waited().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace dslaunch::runtime {

// Makes items ahead; see the top of this file.
template <typename Item>
class Prefetcher {
  public:
    using Make = std::function<Item(int64_t index)>;

    // Starts to make items FIRST, FIRST + 1, …. Only the new thread calls MAKE, one call at a time.
    // CLOCK measures waited() and must outlive the object; null means the system's clock. The
    // destructor waits only for the call of MAKE that is under way, if any. Throws Error{kSetup} if
    // no thread can be started. REQUIRES: depth >= 1.
    Prefetcher(Make make, int64_t first, int64_t depth, const Clock* clock = nullptr)
        : make_(std::move(make)),
          depth_(depth),
          clock_(clock == nullptr ? system_clock_ : *clock),
          next_made_(first),
          next_taken_(first) {
        DSL_CHECK(depth >= 1, "depth {}", depth);
        try {
            thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
        } catch (const std::system_error& error) {
            fail(ExitCode::kSetup, "cannot start the data thread: {}", error.what());
        }
    }
    Prefetcher(const Prefetcher&) = delete;
    Prefetcher& operator=(const Prefetcher&) = delete;

    // Returns item INDEX. Blocks until it is made. If INDEX does not follow the last taken index,
    // drops the ready items and continues from INDEX. Rethrows MAKE's error for INDEX, each time it
    // is requested.
    [[nodiscard]] Item take(int64_t index) {
        std::unique_lock lock(mutex_);
        if (index != next_taken_) restart_at(index);
        if (ready_.empty()) {
            const auto begin = clock_.now();
            filled_.wait(lock, [&] { return !ready_.empty(); });
            waited_ += clock_.now() - begin;
        }
        if (ready_.front().error) std::rethrow_exception(ready_.front().error);
        Item item = std::move(ready_.front().item);
        ready_.pop_front();
        ++next_taken_;
        lock.unlock();
        room_.notify_one();
        return item;
    }

    // Returns the total time for which take() has blocked so far.
    [[nodiscard]] Duration waited() const {
        const std::lock_guard lock(mutex_);
        return waited_;
    }

  private:
    struct Made {
        Item item;
        std::exception_ptr error;
    };

    void restart_at(int64_t index) {
        ready_.clear();
        next_taken_ = index;
        next_made_ = index;
        ++restarts_;
        room_.notify_one();
    }

    // Returns true if there is room. After an error no more items are made until a restart.
    bool may_make() const {
        return static_cast<int64_t>(ready_.size()) < depth_ &&
               (ready_.empty() || !ready_.back().error);
    }

    Made make_one(int64_t index) const {
        try {
            return {make_(index), nullptr};
        } catch (...) {
            return {Item{}, std::current_exception()};
        }
    }

    void run(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        for (;;) {
            room_.wait(lock, stop, [&] { return may_make(); });
            if (stop.stop_requested()) return;
            const int64_t index = next_made_;
            const uint64_t restarts = restarts_;
            lock.unlock();
            Made made = make_one(index);
            lock.lock();
            if (restarts != restarts_) continue;  // made for a position that is no longer needed
            ready_.push_back(std::move(made));
            ++next_made_;
            filled_.notify_one();
        }
    }

    Make make_;
    int64_t depth_;
    SystemClock system_clock_;
    const Clock& clock_;  // system_clock_, or the constructor's

    mutable std::mutex mutex_;
    std::condition_variable_any room_;  // the thread waits here
    std::condition_variable filled_;    // take() waits here
    std::deque<Made> ready_;            // items next_taken_, next_taken_ + 1, …
    int64_t next_made_;
    int64_t next_taken_;
    uint64_t restarts_ = 0;
    Duration waited_{};
    std::jthread thread_;  // last: it uses all the other members
};

}  // namespace dslaunch::runtime
