// What a rank does before the first step and after the last, for the moving line: "setting up:
// measuring memory  14 s". Threads: any.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace dslaunch::runtime {

class Activity {
  public:
    explicit Activity(const Clock& clock) : clock_(clock), began_(clock.now()) {}

    // WHAT, in words, begins; empty: nothing that takes long.
    void begin(std::string_view what);
    // "WHAT  14 s", the time since WHAT began; empty in the first second of all.
    [[nodiscard]] std::string text() const;

  private:
    const Clock& clock_;
    const TimePoint began_;
    mutable std::mutex mutex_;
    std::string what_;
    TimePoint part_began_{};
};

}  // namespace dslaunch::runtime
