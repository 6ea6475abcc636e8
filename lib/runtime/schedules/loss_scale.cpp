#include "runtime/schedules/loss_scale.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::runtime {

namespace {

constexpr double kFactor = 2.0;

LossScaleState first_state(const config::LossScaleConfig& config) {
    LossScaleState state;
    state.scale = config.initial;
    state.hysteresis_left = config.hysteresis;
    return state;
}

}  // namespace

LossScaler::LossScaler(const config::LossScaleConfig& config)
    : LossScaler(config, first_state(config)) {}

LossScaler::LossScaler(const config::LossScaleConfig& config, const LossScaleState& state)
    : config_(config), state_(state) {
    DSL_CHECK(state.scale > 0, "the loss scale is {}, but must be above 0", state.scale);
    if (!config.dynamic) return;
    DSL_CHECK(
        config.minimum > 0 && config.window > 0 && config.hysteresis > 0,
        "the minimum {}, window {} and hysteresis {} of a dynamic loss scale must all be above 0",
        config.minimum, config.window, config.hysteresis);
}

bool LossScaler::update(bool overflow) {
    const double before = state_.scale;
    if (config_.dynamic) {
        overflow ? after_overflow() : after_clean_step();
    }
    state_.good_steps = overflow ? 0 : state_.good_steps + 1;
    ++state_.steps;
    return state_.scale != before;
}

void LossScaler::after_overflow() {
    const bool used_up = config_.hysteresis == 1 || state_.hysteresis_left == 1;
    if (!used_up) {
        --state_.hysteresis_left;
        return;
    }
    if (state_.scale == config_.minimum) {
        fail(ExitCode::kDiverged,
             "step {}: the gradients are not finite and the loss scale is at its minimum, {}{}: "
             "training has diverged; lower optimizer.params.lr, clip gradients "
             "(gradient_clipping), or train in {}, which needs no scale",
             state_.steps + 1, state_.scale,
             config_.grows_in_window ? "" : " (fp16.min_loss_scale)",
             config_.grows_in_window ? "bf16 (torch_autocast.dtype)" : "bf16 (bf16.enabled)");
    }
    state_.scale = std::max(state_.scale / kFactor, config_.minimum);
}

void LossScaler::after_clean_step() {
    if (config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
    // good_steps does not count this step yet.
    const int64_t clean_steps = state_.good_steps + (config_.grows_in_window ? 1 : 0);
    if (clean_steps == 0 || clean_steps % config_.window != 0) return;
    state_.hysteresis_left = config_.hysteresis;
    state_.scale *= kFactor;
}

}  // namespace dslaunch::runtime
