// The loss scale of fp16 training, step by step. The loss is multiplied by it before backward, so
// that small gradients do not vanish, and gradients are divided by it before the update. All ranks
// feed it the same verdict on a step, so every rank has the same scale. One thread.
#pragma once

#include "config/run/precision_config.h"

#include <cstdint>

namespace dslaunch::runtime {

// The part that changes, which a checkpoint has to keep.
struct LossScaleState {
    double scale = 1.0;
    int64_t steps = 0;            // updates seen, skipped ones included
    int64_t good_steps = 0;       // clean updates since the last overflow
    int64_t hysteresis_left = 1;  // the scale halves at an overflow that finds 1

    bool operator==(const LossScaleState&) const = default;
};

// DeepSpeed's rules, as its ZeRO optimizers have them. An overflow halves the scale, though never
// below the minimum, once the hysteresis is used up: hysteresis - 1 overflows before it only count
// down. After `window` clean steps the next clean one doubles the scale and refills the hysteresis,
// and again each `window` clean steps; with consecutive_hysteresis each clean step refills it. With
// grows_in_window the scale doubles at the last step of a window, as torch.amp.GradScaler's. A
// fixed scale never changes.
class LossScaler {
  public:
    // REQUIRES: initial > 0; dynamic: minimum > 0, window > 0, hysteresis > 0.
    explicit LossScaler(const config::LossScaleConfig& config);
    // Goes on from STATE.
    LossScaler(const config::LossScaleConfig& config, const LossScaleState& state);

    // Returns the scale of the next step.
    [[nodiscard]] double scale() const { return state_.scale; }
    [[nodiscard]] const LossScaleState& state() const { return state_; }

    // Takes the verdict on an optimizer step, once after its backward: OVERFLOW says that some
    // gradient of some rank overflowed and the step is skipped. Returns whether the scale changed.
    // Throws Error{kDiverged} if the scale would have to fall below the minimum. The state then
    // stays as it was.
    bool update(bool overflow);

  private:
    void after_overflow();
    void after_clean_step();

    config::LossScaleConfig config_;
    LossScaleState state_;
};

}  // namespace dslaunch::runtime
