// The learning rate of each update, by the formulas of DeepSpeed (runtime/lr_schedules.py of 0.19)
// and of transformers (optimization.py of 5.23). Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "base/range.h"
#include "config/run/run_config.h"

namespace dslaunch::runtime {

// Returns the rate of update UPDATE (0 for the run's first update). BASE_LR is optimizer.params.lr.
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
//   OneCycle       at u < first + second: min + (max - min) * s, where s rises from 0 to 1 over the
//                  first steps and falls back over the second ones, in stairs if asked for;
//                  then min / (1 + decay_lr_rate * (u - first - second) / decay_step_size)
//   LRRangeTest    min * (1 + step_rate * u / step_size), u / step_size as an integer by staircase
// transformers' schedules count updates: at u < W = warmup_num_steps the rate is base * u / W, and
//   Linear, Cosine base * (r + (1 - r) * f), p = (u - W) / (total - W) and f = 1 - p,
//                  or (1 + cos(pi * p)) / 2; r = min_ratio
//   WSD            base, and over the last decay_num_steps base * (r + (1 - r) * f) with p from
//                  there, f also 1 - sqrt(p); its warm-up begins at base * r
// Adafactor's relative_step, t = u + 1:
//                  base * min(0.01, 1 / sqrt(t)); with warmup_init 1e-6 * t in the place of 0.01
// REQUIRES: update >= 0.
[[nodiscard]] double learning_rate(const config::SchedulerConfig& scheduler, double base_lr,
                                   int64_t update);

// Returns the first of UPDATES whose rate is above 0, so that it changes weights; nullopt if all
// rates are 0.
[[nodiscard]] std::optional<int64_t> first_moving_update(const config::SchedulerConfig& scheduler,
                                                         double base_lr, const Range& updates);

// Returns the betas of update UPDATE if the scheduler changes them (OneCycle); nullopt if the
// optimizer's betas apply. The first beta falls from cycle_max_mom and rises again; in the very
// first update it is cycle_min_mom, as in DeepSpeed. The second beta is 0.99.
[[nodiscard]] std::optional<config::Betas> scheduled_betas(const config::SchedulerConfig& scheduler,
                                                           int64_t update);

}  // namespace dslaunch::runtime
