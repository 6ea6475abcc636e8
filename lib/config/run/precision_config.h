// The settings of a run's half precision: part of the run config (config/run/run_config.h), made by
// resolve() from `fp16`, `bf16`, `torch_autocast`, `data_types`. Master weights, gradient sums and
// optimizer state are fp32 by default. No threads: value types.
#pragma once

#include <cstdint>

#include "base/kinds/dtype.h"

namespace dslaunch::config {

// The rules are in runtime/schedules/loss_scale.h. fp32 and bf16 have a fixed scale of 1.
struct LossScaleConfig {
    bool dynamic = false;    // fp16.loss_scale is 0
    double initial = 1.0;    // the fixed scale, or two to the power fp16.initial_scale_power
    double minimum = 1.0;    // dynamic: the smallest scale
    int64_t window = 1000;   // dynamic: steps without overflow between two doublings
    int64_t hysteresis = 2;  // dynamic: overflows until the scale halves
    bool consecutive_hysteresis = false;  // dynamic: every clean step refills the hysteresis
    // If true, a dynamic scale doubles at the last of each `window` clean steps, as in
    // torch.amp.GradScaler. If false, it doubles one clean step later.
    bool grows_in_window = false;

    bool operator==(const LossScaleConfig&) const = default;
};

// The types of weights and computation, and the handling of gradients that are not finite.
struct PrecisionConfig {
    // The type in which forward and backward run, under autocast: kF32, kBF16 or kF16.
    DType compute = DType::kF32;
    // If true (torch_autocast), the weights that forward and backward read are fp32, and autocast
    // converts them to the type `compute`.
    bool fp32_weights = false;
    // If true, a step whose gradients are not finite is skipped; if false, such a step ends the
    // run. True for fp16, and for bf16 unless bf16.check_grad_overflow is false. False for fp32,
    // and for fp32 weights under autocast in bf16.
    bool skip_nonfinite_steps = false;
    // If true, 16-bit weights have fp32 master copies. If false, there are only the bf16 weights,
    // and an update rounds them stochastically.
    bool master_copies = true;
    LossScaleConfig loss_scale;

    // Returns the type of the weights that forward and backward read.
    [[nodiscard]] DType weights() const { return fp32_weights ? DType::kF32 : compute; }
    // Returns true if fp32 master copies are kept beside 16-bit weights.
    [[nodiscard]] bool has_masters() const { return weights() != DType::kF32 && master_copies; }
    bool operator==(const PrecisionConfig&) const = default;
};

}  // namespace dslaunch::config
