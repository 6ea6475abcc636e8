// A stream of a device that is a thread. It does its work in order, after random times, so that a
// test fails if a stream does not wait for another one. After an error, the stream does no more
// work, and later events throw the error. An abort has the same effects as NCCL's: running work is
// told, the rest is not done, and events count as reached.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "device/stream.h"

namespace dslaunch::test {

// An event whose state is shared with the streams that record it or wait for it. So it may be
// destroyed before they do this, as in CUDA.
class ThreadEvent final : public device::Event {
  public:
    class State {
      public:
        // Starts a record and returns its number.
        uint64_t record() {
            const std::lock_guard lock(mutex_);
            return ++recorded_;
        }
        [[nodiscard]] uint64_t recorded() const {
            const std::lock_guard lock(mutex_);
            return recorded_;
        }
        // Marks RECORD as reached. FAULT is the error of earlier work, which waiting streams throw;
        // null: no error.
        void reach(uint64_t record, const std::exception_ptr& fault = nullptr) {
            const std::lock_guard lock(mutex_);
            fault_ = fault;
            reached_ = record;
            time_ = SystemClock().now();
            changed_.notify_all();
        }
        void await(uint64_t record) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return reached_ >= record; });
            if (fault_) std::rethrow_exception(fault_);
        }
        [[nodiscard]] bool has_reached(uint64_t record) const {
            const std::lock_guard lock(mutex_);
            return reached_ >= record;
        }
        [[nodiscard]] bool is_reached() const {
            const std::lock_guard lock(mutex_);
            if (fault_) std::rethrow_exception(fault_);
            return reached_ == recorded_;
        }
        [[nodiscard]] TimePoint time() const {
            const std::lock_guard lock(mutex_);
            if (reached_ != recorded_)
                fail(ExitCode::kInternal, "the time of an event that is not reached");
            return time_;
        }

      private:
        mutable std::mutex mutex_;
        std::condition_variable changed_;
        uint64_t recorded_ = 0;
        uint64_t reached_ = 0;
        std::exception_ptr fault_;
        TimePoint time_{};
    };

    [[nodiscard]] bool is_reached() override { return state_->is_reached(); }
    [[nodiscard]] Duration since(const device::Event& earlier) const override {
        return state_->time() - state_of(earlier)->time();
    }
    [[nodiscard]] static const std::shared_ptr<State>& state_of(const device::Event& event) {
        return dynamic_cast<const ThreadEvent&>(event).state_;
    }

  private:
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ThreadStream final : public device::Stream {
  public:
    // Delays each piece of work by up to LONGEST_DELAY.
    explicit ThreadStream(uint64_t seed, Duration longest_delay = std::chrono::microseconds(200))
        : random_(seed), longest_delay_(longest_delay), thread_([this] { main(); }) {}
    ThreadStream(const ThreadStream&) = delete;
    ThreadStream& operator=(const ThreadStream&) = delete;
    // REQUIRES: every memory block that its work uses has been freed.
    ~ThreadStream() override {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    void put(std::function<void()> work) { put({std::move(work), /*is_event=*/false}); }
    // Does the same, but without a delay, and also after an abort.
    void put_now(std::function<void()> work) { put({std::move(work), /*is_event=*/true}); }

    [[nodiscard]] std::unique_ptr<device::Event> make_event() override {
        return std::make_unique<ThreadEvent>();
    }
    void record(device::Event& event) override {
        const auto& state = ThreadEvent::state_of(event);
        put({[this, state, record = state->record()] { state->reach(record, fault_); },
             /*is_event=*/true});
    }
    void wait(device::Event& event) override {
        if (waits++ == leave_out) return;
        const auto& state = ThreadEvent::state_of(event);
        put([this, state, record = state->recorded()] {
            set_awaited({state, record});
            state->await(record);
            set_awaited({});
        });
    }
    void check() override {
        const std::lock_guard lock(mutex_);
        if (fault_) std::rethrow_exception(fault_);
    }
    // Waits until all work so far is done. Throws the error of this work.
    void drain() {
        ThreadEvent event;
        record(event);
        ++drains_;
        try {
            ThreadEvent::state_of(event)->await(1);
        } catch (...) {
            --drains_;
            throw;
        }
        --drains_;
    }
    // Returns true if a thread of the host waits for this stream and this stream waits for another
    // one. Any thread.
    [[nodiscard]] bool is_read_while_waiting() {
        const std::lock_guard lock(mutex_);
        return drains_ > 0 && awaited_.state && !awaited_.state->has_reached(awaited_.record);
    }
    // Waits until all work so far is done or dropped. Ignores errors.
    void finish() {
        try {
            drain();
        } catch (...) {  // the code that waited for an operator got its error already
        }
    }
    // Drops the rest of the work. Any thread.
    void abort() {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
    }

    // Lets COUNT pieces of work succeed, and the next one fail. Any thread.
    void fail_work(int64_t count) { fails_after_ = count; }

    int waits = 0;       // number of calls of wait()
    int leave_out = -1;  // the number of the wait to skip, from 0

  private:
    // A record that this stream waits for.
    struct Awaited {
        std::shared_ptr<ThreadEvent::State> state;
        uint64_t record = 0;
    };
    struct Work {
        std::function<void()> run;
        bool is_event = false;
    };

    void put(Work work) {
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
        }
        changed_.notify_all();
    }

    void set_awaited(Awaited awaited) {
        const std::lock_guard lock(mutex_);
        awaited_ = std::move(awaited);
    }

    void main() {
        for (;;) {
            Work work;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
                if (queue_.empty()) return;
                work = std::move(queue_.front());
                queue_.pop_front();
                if ((aborted_ || fault_) && !work.is_event) continue;
            }
            if (!work.is_event) std::this_thread::sleep_for(delay());
            try {
                if (!work.is_event && fails_after_ >= 0 && fails_after_-- == 0)
                    fail(ExitCode::kRankFailed, "a kernel failed");
                work.run();
            } catch (...) {
                const std::lock_guard lock(mutex_);
                fault_ = std::current_exception();
            }
        }
    }

    Duration delay() {
        std::uniform_int_distribution<int64_t> ns(0, longest_delay_.count());
        return Duration(ns(random_));
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    bool ending_ = false;
    bool aborted_ = false;
    Awaited awaited_;
    std::atomic<int> drains_ = 0;
    std::atomic<int64_t> fails_after_ = -1;
    std::exception_ptr fault_;  // the first error of the work; only the stream's thread sets it
    std::mt19937_64 random_;
    Duration longest_delay_;
    std::thread thread_;
};

}  // namespace dslaunch::test
