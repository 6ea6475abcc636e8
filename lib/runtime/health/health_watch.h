// What keeps a rank of `dslaunch health` from hanging, whatever a library does: a thread that ends
// the process when a step, or the whole, takes longer than it may; and that knows where the rank
// is, for its heartbeats. health role -> [here] -> reporter. Threads: any.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"

namespace dslaunch::runtime {

class HealthWatch {
  public:
    // ON_LATE is called once, in the watch's thread, with what took too long; it ends the process.
    HealthWatch(Duration whole, std::function<void(const std::string& why)> on_late);
    HealthWatch(const HealthWatch&) = delete;
    HealthWatch& operator=(const HealthWatch&) = delete;
    ~HealthWatch();

    // A step begins, the one before is over.
    void enter(const std::string& where, Duration limit);
    [[nodiscard]] std::string where() const;
    [[nodiscard]] uint64_t steps_done() const;
    [[nodiscard]] TimePoint deadline() const { return whole_deadline_; }

  private:
    void watch();

    std::function<void(const std::string&)> on_late_;
    Duration whole_;
    TimePoint whole_deadline_;
    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::string where_ = "setting up";
    Duration limit_{};
    TimePoint step_deadline_;
    uint64_t steps_ = 0;
    bool stopping_ = false;
    std::thread thread_;  // begins last
};

}  // namespace dslaunch::runtime
