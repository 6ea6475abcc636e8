// The settings of a run's half precision: a part of the run config (config/run/run_config.h), made
// by resolve() from `fp16`, `bf16`, `torch_autocast`, `data_types`. Master weights, gradient sums
// and optimizer state are fp32 with any setting. No threads: value types.
#pragma once

#include "base/kinds/dtype.h"

#include <cstdint>

namespace dslaunch::config {

// The rules are runtime/schedules/loss_scale.h's. fp32 and bf16 have a fixed scale of 1.
struct LossScaleConfig {
    bool dynamic = false;    // fp16.loss_scale is 0
    double initial = 1.0;    // the fixed scale, or two to the power fp16.initial_scale_power
    double minimum = 1.0;    // dynamic: the smallest scale
    int64_t window = 1000;   // dynamic: steps without overflow between two doublings
    int64_t hysteresis = 2;  // dynamic: overflows until the scale halves
    bool consecutive_hysteresis = false;  // dynamic: a clean step refills the hysteresis at once
    // dynamic: the scale doubles at the last of `window` clean steps, not at the next clean one, as
    // torch.amp.GradScaler's does.
    bool grows_in_window = false;

    bool operator==(const LossScaleConfig&) const = default;
};

struct PrecisionConfig {
    // Forward and backward run in this type, under autocast: kF32, kBF16 or kF16.
    DType compute = DType::kF32;
    // The weights that they read are fp32, not of that type: torch_autocast.
    bool fp32_weights = false;
    // A step whose gradients are not finite is skipped; else it ends the run. True for fp16, and
    // for bf16 unless bf16.check_grad_overflow is false; false for fp32, and for fp32 weights under
    // autocast in bf16.
    bool skip_nonfinite_steps = false;
    // 16-bit weights have fp32 master copies. False: bf16 weights are all there is, and an update
    // rounds them by drawn numbers.
    bool master_copies = true;
    LossScaleConfig loss_scale;

    // Returns the type of the weights that forward and backward read.
    [[nodiscard]] DType weights() const { return fp32_weights ? DType::kF32 : compute; }
    [[nodiscard]] bool has_masters() const { return weights() != DType::kF32 && master_copies; }
    bool operator==(const PrecisionConfig&) const = default;
};

}  // namespace dslaunch::config
