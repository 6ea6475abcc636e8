// The settings of a run's optimizer: a part of the run config (config/run/run_config.h), made by
// resolve() from `optimizer` and `dslaunch.optimizer`. No threads: value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

enum class OptimizerKind {
    kAdam,
    kAdamW,
    kSgd,
    kAdagrad,
    kLion,
    kLamb,
    kMuon,
    kAdafactor,
    kOneBitAdam,
    kZeroOneAdam,
    kOneBitLamb
};

// Muon makes a matrix orthogonal by products of the matrix itself, or of its Gram matrix, which is
// smaller unless the matrix is square.
enum class NewtonSchulz { kStandard, kGram };

// The phases of 1-bit Adam, 0/1 Adam and 1-bit LAMB, in updates
// (runtime/schedules/exchange_schedule.h), and what 1-bit LAMB's second phase does to the ratios.
struct OneBitConfig {
    int64_t freeze_step = 100'000;       // 1-bit Adam and LAMB: updates with gradients in full
    int64_t var_freeze_step = 100'000;   // 0/1 Adam: hosts go on alone from the next but one on
    int64_t var_update_scaler = 16;      // exact updates before their interval doubles
    int64_t local_step_scaler = 32'678;  // updates of a host alone before their interval doubles
    int64_t local_step_clipper = 16;     // the longest such interval
    double coeff_beta = 0.9;             // 1-bit LAMB: of the mean of a tensor's ratios
    // Later the mean is multiplied by a factor between these, which changes by at most a part of
    // THRESHOLD in an update.
    double factor_max = 4.0;
    double factor_min = 0.5;
    double factor_threshold = 0.1;

    bool operator==(const OneBitConfig&) const = default;
};

// Adafactor in the form of transformers.
struct AdafactorConfig {
    double square_eps = 1e-30;    // added to squares of gradients
    double scale_eps = 1e-3;      // the least scale of a tensor
    double clip_threshold = 1;    // of the root of the mean square of an update
    double decay_rate = -0.8;     // update t (from 1) keeps 1 - t^decay_rate of the second moment
    bool first_moment = false;    // OptimizerConfig::beta1 is its decay
    bool scale_parameter = true;  // rates are multiplied by a tensor's root of the mean square

    bool operator==(const AdafactorConfig&) const = default;
};

// Adam: L2 decay added to the gradient; AdamW: decoupled decay, applied before the update (as
// PyTorch and DeepSpeed). DeepSpeed's "Adam" with adam_w_mode true (its default) is AdamW:
// resolve() decides.
struct OptimizerConfig {
    OptimizerKind kind = OptimizerKind::kAdamW;
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.0;
    bool bias_correction = true;
    bool maximize = false;   // SGD, Adam, AdamW, Adagrad: the gradient is climbed
    double momentum = 0.0;   // SGD, Muon
    double dampening = 0.0;  // SGD
    bool nesterov = false;   // SGD
    double lr_decay = 0.0;  // Adagrad: update u (from 1) has the rate lr / (1 + (u - 1) * lr_decay)
    double initial_accumulator_value = 0.0;  // Adagrad
    // LAMB: the least and the largest ratio of a tensor's norm to its update's.
    double min_coeff = 0.01;
    double max_coeff = 10.0;
    NewtonSchulz newton_schulz = NewtonSchulz::kGram;  // Muon
    double rest_lr = 1e-3;  // Muon: AdamW's rate, for all but hidden matrices

    OneBitConfig one_bit;  // OneBitAdam, ZeroOneAdam, OneBitLamb
    AdafactorConfig adafactor;

    // Returns true if hosts tell each other less than gradients in full.
    [[nodiscard]] bool compresses() const {
        return kind == OptimizerKind::kOneBitAdam || kind == OptimizerKind::kZeroOneAdam ||
               kind == OptimizerKind::kOneBitLamb;
    }
    // Returns true if weight decay is added to the gradient and so passes through the states; the
    // other optimizers decay the parameters themselves.
    [[nodiscard]] bool decays_gradient() const {
        return weight_decay != 0 && (kind == OptimizerKind::kAdam || kind == OptimizerKind::kSgd ||
                                     kind == OptimizerKind::kAdagrad);
    }
    // Returns true if the update of an element depends on all others of its tensor.
    [[nodiscard]] bool needs_whole_tensors() const {
        return kind == OptimizerKind::kLamb || kind == OptimizerKind::kMuon ||
               kind == OptimizerKind::kAdafactor || kind == OptimizerKind::kOneBitLamb;
    }

    bool operator==(const OptimizerConfig&) const = default;
};

// dslaunch.optimizer.groups: parameters with numbers of their own. Unset numbers are the
// optimizer's.
struct ParameterGroup {
    std::vector<std::string> match;  // names of parameters, `*` for any characters
    std::optional<double> lr;        // schedules multiply it as they do the optimizer's
    std::optional<double> weight_decay;
    std::optional<double> beta1, beta2;
    std::optional<double> eps;
    std::optional<bool> muon;  // Muon: true: it updates them, false: AdamW does

    bool operator==(const ParameterGroup&) const = default;
};

}  // namespace dslaunch::config
