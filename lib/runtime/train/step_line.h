// The line that moves on the terminal while a job is set up and trains: how far it is, within a
// step too. Data path: trainer -> [here] -> heartbeat -> launcher. Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::runtime {

// A step that is done.
struct DoneStep {
    int64_t step = 0;
    double loss = 0;
    double lr = 0;
    double step_ms = 0;
    double units_per_step = 0;  // of the rate that is shown: tokens or samples
    std::string_view unit;      // "tok", "samples"
    Bytes rss;
};

class StepLine {
  public:
    // STEPS: the job's number of steps. Shows nothing before one begins.
    StepLine(const Clock& clock, int64_t steps) : clock_(clock), steps_(steps) {}

    void begin_step(int64_t step);
    void end_step(const DoneStep& done);
    // Shows other work from now on, as "evaluating"; empty: steps again.
    void begin_other(std::string_view what);
    // Notes that SHARE of that is done.
    void do_other(double share);

    // Returns "step 41/60  loss 2.8540  left 0:00:07  lr 0.001  346 ms/step  185 tok/s  668.0 MiB".
    // SHARE of the present step is done. A step that takes long says how long it has taken.
    [[nodiscard]] std::string text(double share) const;

  private:
    [[nodiscard]] double seconds_since(TimePoint begin) const;

    const Clock& clock_;
    const int64_t steps_;
    mutable std::mutex mutex_;
    int64_t step_ = 0;  // under way, from 1; 0: none yet
    TimePoint step_began_{};
    std::string other_;
    double other_share_ = 0;
    TimePoint other_began_{};
    std::optional<DoneStep> done_;
    int64_t steps_done_ = 0;  // since begin
    double mean_ms_ = 0;      // of a step; newer ones weigh more
};

// A rank's work before the first step and after the last: "setting up: measuring memory  14 s".
class Activity {
  public:
    explicit Activity(const Clock& clock) : clock_(clock), began_(clock.now()) {}

    // Notes that WHAT, in words, begins; empty: nothing that takes long.
    void begin(std::string_view what);
    // Returns "WHAT  14 s", the time since WHAT began; empty in the first second of all.
    [[nodiscard]] std::string text() const;

  private:
    const Clock& clock_;
    const TimePoint began_;
    mutable std::mutex mutex_;
    std::string what_;
    TimePoint part_began_{};
};

}  // namespace dslaunch::runtime
