// The loss scale of fp16 training, step by step. The loss is multiplied by the scale before
// backward, so that small gradients do not underflow, and gradients are divided by it before the
// update. All ranks pass the same result of each step, so every rank has the same scale. One
// thread.
#pragma once

#include <cstdint>

#include "config/run/precision_config.h"

namespace dslaunch::runtime {

// The variable part of the scaler, which a checkpoint has to contain.
struct LossScaleState {
    double scale = 1.0;
    int64_t steps = 0;            // all updates, skipped ones included
    int64_t good_steps = 0;       // clean updates since the last overflow
    int64_t hysteresis_left = 1;  // at 1, the next overflow halves the scale

    bool operator==(const LossScaleState&) const = default;
};

// Follows the rules of DeepSpeed's ZeRO optimizers. The first `hysteresis - 1` overflows leave the
// scale as it is. Each later overflow halves the scale, but never below the minimum. After `window`
// clean steps, the next clean step doubles the scale and resets the hysteresis. This repeats after
// each further `window` clean steps. With consecutive_hysteresis each clean step resets the
// hysteresis. With grows_in_window the scale doubles at the last step of a window, as in
// torch.amp.GradScaler. A fixed scale never changes.
class LossScaler {
  public:
    // REQUIRES: initial > 0; if the scale is dynamic: minimum > 0, window > 0, hysteresis > 0.
    explicit LossScaler(const config::LossScaleConfig& config);
    // Continues from STATE.
    LossScaler(const config::LossScaleConfig& config, const LossScaleState& state);

    // Returns the scale of the next step.
    [[nodiscard]] double scale() const { return state_.scale; }
    [[nodiscard]] const LossScaleState& state() const { return state_; }

    // Records the result of an optimizer step. Called once for each step. OVERFLOW means that a
    // gradient on some rank overflowed and the step is skipped. Returns true if the scale changed.
    // Throws Error{kDiverged} if the scale would have to fall below the minimum; the state then
    // stays as it was.
    bool update(bool overflow);

  private:
    void after_overflow();
    void after_clean_step();

    config::LossScaleConfig config_;
    LossScaleState state_;
};

}  // namespace dslaunch::runtime
