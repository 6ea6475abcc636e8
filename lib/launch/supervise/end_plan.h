// Decides when the ranks of an attempt are ended. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "launch/process/timing.h"

namespace dslaunch::launch {

// The reasons so far to end all ranks, and the earliest time at which a reason takes effect.
class EndPlan {
  public:
    using Time = std::chrono::steady_clock::time_point;

    // After a failure: ends all ranks at TIME at the latest.
    void end_by(Time time) { end_by_ = std::min(end_by_.value_or(kNever), time); }
    // The ranks were asked to save and end by themselves, and have until TIME.
    void let_save_until(Time time) { save_until_ = time; }
    // Somebody wants the end at once; nothing more is waited for.
    void end_now() { is_now_ = true; }

    // has_end() returns true after end_by(), lets_save() after let_save_until(), and is_now() after
    // end_now().
    [[nodiscard]] bool has_end() const { return end_by_.has_value(); }
    [[nodiscard]] bool lets_save() const { return save_until_.has_value(); }
    [[nodiscard]] bool is_now() const { return is_now_; }
    // Returns the time at which the remaining ranks are ended. If there is no reason yet to end
    // them, returns the largest time.
    [[nodiscard]] Time deadline() const {
        return std::min(end_by_.value_or(kNever), save_until_.value_or(kNever));
    }
    bool operator==(const EndPlan&) const = default;

  private:
    std::optional<Time> end_by_;
    std::optional<Time> save_until_;
    bool is_now_ = false;
};

}  // namespace dslaunch::launch
