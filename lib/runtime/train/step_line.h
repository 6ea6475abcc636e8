// The status line on the terminal while a job is set up and trains. It shows the job's progress,
// also within a step. Data path: trainer -> [here] -> heartbeat -> launcher. Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::runtime {

// The data of a finished step.
struct DoneStep {
    int64_t step = 0;
    double loss = 0;
    double lr = 0;
    double step_ms = 0;
    double units_per_step = 0;  // tokens or samples, for the rate
    std::string_view unit;      // "tok", "samples"
    double mfu = 0;             // share of the device's peak; 0 if not known
    Bytes rss;
};

// Returns a share as "41 %", or "0.31 %" if it is small.
[[nodiscard]] std::string mfu_text(double share);

// The status line; see the top of this file.
class StepLine {
  public:
    // STEPS is the job's number of steps. The line is empty until a step begins.
    StepLine(const Clock& clock, int64_t steps) : clock_(clock), steps_(steps) {}

    // Note that a step begins, or that a step has ended with the results DONE.
    void begin_step(int64_t step);
    void end_step(const DoneStep& done);
    // Shows WHAT, such as "evaluating", instead of steps. If WHAT is empty, shows steps again.
    void begin_other(std::string_view what);
    // Notes that SHARE of the other work is done.
    void do_other(double share);

    // Returns "step 41/60  loss 2.8540  left 0:00:07  lr 0.001  346 ms/step  185 tok/s  668.0 MiB".
    // SHARE of the present step is done. For a long step the text includes the time since the step
    // began.
    [[nodiscard]] std::string text(double share) const;

  private:
    [[nodiscard]] double seconds_since(TimePoint begin) const;

    const Clock& clock_;
    const int64_t steps_;
    mutable std::mutex mutex_;
    int64_t step_ = 0;  // the current step, from 1; 0: none yet
    TimePoint step_began_{};
    std::string other_;
    double other_share_ = 0;
    TimePoint other_began_{};
    std::optional<DoneStep> done_;
    int64_t steps_done_ = 0;  // steps done since this object was made
    double mean_ms_ = 0;      // mean time of a step; newer steps count more
};

// A rank's work before the first step and after the last, as a text: "setting up: measuring memory
// 14 s".
class Activity {
  public:
    explicit Activity(const Clock& clock) : clock_(clock), began_(clock.now()) {}

    // Notes that a long task begins. WHAT describes the task in words; an empty WHAT means that the
    // task has ended.
    void begin(std::string_view what);
    // Returns "WHAT  14 s" with the time since begin(WHAT). Returns an empty text in the first
    // second of this object's life.
    [[nodiscard]] std::string text() const;

  private:
    const Clock& clock_;
    const TimePoint began_;
    mutable std::mutex mutex_;
    std::string what_;
    TimePoint part_began_{};
};

}  // namespace dslaunch::runtime
