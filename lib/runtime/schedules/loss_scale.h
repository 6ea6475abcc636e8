// The loss scale of fp16 training, step by step: what the loss is multiplied by before backward, so
// that small gradients do not vanish, and what gradients are divided by before the update. Fed with
// the one verdict of all ranks on a step; equal verdicts give equal scales on every rank. One
// thread.
#pragma once

#include "config/run/precision_config.h"

#include <cstdint>

namespace dslaunch::runtime {

// All that changes: what a checkpoint has to keep.
struct LossScaleState {
    double scale = 1.0;
    int64_t steps = 0;            // updates seen, skipped ones included
    int64_t good_steps = 0;       // of them clean since the last overflow
    int64_t hysteresis_left = 1;  // the scale halves at an overflow that finds 1

    bool operator==(const LossScaleState&) const = default;
};

// DeepSpeed's rules. An overflow halves the scale, though never below the minimum, once the
// hysteresis is used up: hysteresis - 1 overflows before it only count down. After `window` clean
// steps the next clean one doubles the scale and refills the hysteresis, and again each `window`
// clean steps; with consecutive_hysteresis each clean step refills it. A fixed scale never changes.
class LossScaler {
  public:
    // REQUIRES: initial > 0; dynamic: minimum > 0, window > 0, hysteresis > 0.
    explicit LossScaler(const config::LossScaleConfig& config);
    // Goes on from STATE.
    LossScaler(const config::LossScaleConfig& config, const LossScaleState& state);

    // For the next step.
    [[nodiscard]] double scale() const { return state_.scale; }
    [[nodiscard]] const LossScaleState& state() const { return state_; }

    // Once per optimizer step, after its backward: did any gradient of any rank overflow (a step
    // that is then skipped)? Returns whether the scale changed. Throws Error{kDiverged} when the
    // scale would have to fall below the minimum; the state stays as it was.
    bool update(bool overflow);

  private:
    void after_overflow();
    void after_clean_step();

    config::LossScaleConfig config_;
    LossScaleState state_;
};

}  // namespace dslaunch::runtime
