// Reports to the launcher what a rank of a training does: the parts of its set-up, its steps, and
// the writing of its weights. Data path: dsworker train -> [here] -> heartbeats -> launcher.
// begin() and set_up(): one thread; another thread sends the heartbeats.
#pragma once

#include <string_view>
#include <thread>

#include "base/clock.h"
#include "launch/protocol/control.h"
#include "runtime/train/reporter.h"
#include "runtime/train/step_line.h"
#include "runtime/train/trainer.h"

namespace dslaunch::worker {

// The activity of a rank and its heartbeats. Only rank 0 describes the activity in words, for all
// ranks.
class RankProgress {
  public:
    // REPORTER must outlive this object. SPEAKS is true on rank 0.
    RankProgress(runtime::Reporter& reporter, bool speaks) : reporter_(reporter), speaks_(speaks) {}

    // Sends heartbeats from now on, until follow() or the end of this object.
    void start();
    // Notes that a part of the set-up begins. WHAT describes it, for example "reading the model".
    void set_up(std::string_view what);
    // Notes that the work WHAT begins after the set-up. An empty WHAT means the trainer's steps.
    void begin(std::string_view what) { activity_.begin(what); }
    // Sends heartbeats about TRAINER from now on, until the result is destroyed. TRAINER must
    // outlive the result.
    [[nodiscard]] std::jthread follow(runtime::Trainer& trainer);
    // Returns the time since this object was made, in seconds.
    [[nodiscard]] double seconds() const;

  private:
    runtime::Reporter& reporter_;
    const bool speaks_;
    SystemClock clock_;
    TimePoint began_ = clock_.now();
    runtime::Activity activity_{clock_};
    std::jthread heartbeats_;  // used until there is a trainer
};

}  // namespace dslaunch::worker
