// The scheduler: the learning rate as a function of the update. Part of RunConfig.
#pragma once

#include <cstdint>

namespace dslaunch::config {

// The formula of the learning rate.
enum class SchedulerKind {
    kConstant,
    kWarmupLr,  // this one and the next four are DeepSpeed's
    kWarmupDecayLr,
    kWarmupCosineLr,
    kOneCycle,
    kLrRangeTest,
    kLinear,  // this one and the next two are transformers'
    kCosine,
    kWsd,
    kRelativeStep,  // Adafactor's own schedule: relative_step, warmup_init
};
// The curve on which the rate rises in the warmup, or falls at the end (WSD).
enum class WarmupType { kLog, kLinear };
enum class DecayType { kLinear, kCosine, kOneMinusSqrt };

// OneCycle (arXiv:1803.09820): the rate rises and falls once between two bounds, then decays. The
// first moment's beta moves in the opposite direction: it falls, then rises.
struct CycleConfig {
    double min_lr = 0, max_lr = 0;
    double lr_decay_rate = 0;
    int64_t first_steps = 2000, second_steps = 2000;
    int64_t first_stairs = 0, second_stairs = 0;  // 0 if the rate changes at every update
    int64_t decay_steps = 0;                      // 0 for no decay
    bool betas = true;
    double min_beta = 0.8, max_beta = 0.9;
    double beta_decay_rate = 0;

    bool operator==(const CycleConfig&) const = default;
};

// LRRangeTest: the rate grows from min_lr without end, to find the highest stable rate.
struct RangeTestConfig {
    double min_lr = 1e-3;
    int64_t steps = 2000;  // steps in which the rate grows by `rate` times min_lr
    double rate = 1;
    bool staircase = false;

    bool operator==(const RangeTestConfig&) const = default;
};

// The fields for all kinds; each kind uses some of them. The formulas are in
// runtime/schedules/learning_rate.h.
struct SchedulerConfig {
    SchedulerKind kind = SchedulerKind::kConstant;
    double warmup_min_lr = 0.0;
    double warmup_max_lr = 1e-3;
    int64_t warmup_num_steps = 1000;
    WarmupType warmup_type = WarmupType::kLog;
    int64_t total_num_steps = 0;
    double warmup_min_ratio = 0.0;  // WarmupCosineLR
    double cos_min_ratio = 1e-4;    // WarmupCosineLR
    double min_ratio = 0.0;         // Linear, Cosine, WSD: part of optimizer.params.lr at the end
    int64_t decay_num_steps = 0;    // WSD
    DecayType decay_type = DecayType::kLinear;  // WSD
    bool warmup_init = false;                   // kRelativeStep
    CycleConfig cycle;
    RangeTestConfig range_test;

    bool operator==(const SchedulerConfig&) const = default;
};

// The decay factors of an optimizer's two moments.
struct Betas {
    double beta1 = 0, beta2 = 0;

    bool operator==(const Betas&) const = default;
};

}  // namespace dslaunch::config
