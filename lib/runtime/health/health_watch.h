// The watch prevents a rank of `dslaunch health` from hanging, whatever a library does. Its thread
// ends the process if a step, or the whole run, takes longer than it may. It also stores the step
// at which the rank is, for heartbeats. Data path: health role -> [here] -> reporter. Threads: any.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"

namespace dslaunch::runtime {

// Calls a function if a rank of `dslaunch health` stays in one step for too long.
class HealthWatch {
  public:
    // ON_LATE is called once, in the watch's thread, with the reason. It must end the process.
    HealthWatch(Duration whole, std::function<void(const std::string& why)> on_late);
    HealthWatch(const HealthWatch&) = delete;
    HealthWatch& operator=(const HealthWatch&) = delete;

    // Begins a step and ends the previous one.
    void enter(const std::string& where, Duration limit);
    // Return the present step, the number of steps begun, and the time by which the whole run must
    // be done.
    [[nodiscard]] std::string where() const;
    [[nodiscard]] uint64_t steps_done() const;
    [[nodiscard]] TimePoint deadline() const { return whole_deadline_; }

  private:
    void watch(const std::stop_token& stop);

    std::function<void(const std::string&)> on_late_;
    Duration whole_;
    TimePoint whole_deadline_;
    mutable std::mutex mutex_;  // guards the members below
    std::condition_variable_any changed_;
    std::string where_ = "setting up";
    Duration limit_{};
    TimePoint step_deadline_;
    uint64_t steps_ = 0;
    std::jthread thread_;  // started last
};

}  // namespace dslaunch::runtime
