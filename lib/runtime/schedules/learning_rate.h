// The learning rate of each update, by DeepSpeed's formulas (runtime/lr_schedules.py of 0.19). Pure
// functions.
#pragma once

#include "config/run/run_config.h"

#include <cstdint>

namespace dslaunch::runtime {

// Returns the rate of update UPDATE (0: the first one of the run). BASE_LR is optimizer.params.lr.
// DeepSpeed steps its scheduler after the optimizer, so update u uses iteration i = u - 1. At i =
// -1 the rate is the scheduler's start: warmup_min_lr, or 0 for the cosine. With N = max(2,
// warmup_num_steps) and i < N the warm-up is g = ln(i + 1) / ln N (log) or i / N (linear). "log"
// gives the minimum twice: at i = -1 and at i = 0.
//   WarmupLR       min + (max - min) * g, then max
//   WarmupDecayLR  the same, then g = max(0, (total - i) / max(1, total - N))
//   WarmupCosineLR base * (r + (1 - r) * g),
//                  then base * max(0, c + (1 - c) * (1 + cos(pi * p)) / 2)
//                  with r = warmup_min_ratio, c = cos_min_ratio,
//                  p = min(1, (i - N + 1) / max(1, total - N))
// REQUIRES: update >= 0.
[[nodiscard]] double learning_rate(const config::SchedulerConfig& scheduler, double base_lr,
                                   int64_t update);

}  // namespace dslaunch::runtime
