// The settings of a run's optimizer: part of the run config (config/run/run_config.h), made by
// resolve() from `optimizer` and `dslaunch.optimizer`. No threads: value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run/optimizer_facts.h"

namespace dslaunch::config {

// The matrix that is multiplied in Muon's Newton-Schulz iteration. kStandard: the matrix that
// becomes orthogonal. kGram: its Gram matrix, which is smaller unless the matrix is square.
enum class NewtonSchulz { kStandard, kGram };

// The settings of 1-bit Adam, 0/1 Adam and 1-bit LAMB. Each field names the optimizers that use it.
// An optimizer begins its next phase after a number of updates
// (runtime/schedules/exchange_schedule.h).
struct OneBitConfig {
    int64_t freeze_step = 100'000;       // 1-bit Adam and LAMB: updates with whole gradients
    int64_t var_freeze_step = 100'000;   // 0/1 Adam: hosts begin to update alone two updates later
    int64_t var_update_scaler = 16;      // exact updates before the interval between them doubles
    int64_t local_step_scaler = 32'678;  // updates before the interval of hosts' exchanges doubles
    int64_t local_step_clipper = 16;     // the longest interval of these exchanges
    double coeff_beta = 0.9;             // 1-bit LAMB: decay of the mean of a tensor's ratios
    // In its second phase, 1-bit LAMB multiplies the mean ratio by a factor from factor_min to
    // factor_max. An update changes the factor by at most `factor_threshold` times its value.
    double factor_max = 4.0;
    double factor_min = 0.5;
    double factor_threshold = 0.1;

    bool operator==(const OneBitConfig&) const = default;
};

// Adafactor as in transformers.
struct AdafactorConfig {
    double square_eps = 1e-30;    // added to squares of gradients
    double scale_eps = 1e-3;      // the smallest scale of a tensor
    double clip_threshold = 1;    // limit of the root mean square of an update
    double decay_rate = -0.8;     // update t (from 1) keeps 1 - t^decay_rate of the second moment
    bool first_moment = false;    // OptimizerConfig::beta1 is its decay
    bool scale_parameter = true;  // rates are multiplied by a tensor's root mean square

    bool operator==(const AdafactorConfig&) const = default;
};

// Adam adds L2 decay to the gradient; AdamW applies decoupled decay before the update (as PyTorch
// and DeepSpeed do). DeepSpeed's "Adam" with adam_w_mode true (its default) is AdamW here;
// resolve() decides.
struct OptimizerConfig {
    OptimizerKind kind = OptimizerKind::kAdamW;
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.0;
    bool bias_correction = true;
    bool maximize = false;  // SGD, Adam, AdamW, Adagrad: gradient ascent
    bool amsgrad = false;   // Adam, AdamW: divide by the root of the largest second moment so far
    bool eps_inside_sqrt = false;  // LAMB: eps is added to the second moment, not to its root
    double momentum = 0.0;         // SGD, Muon
    double dampening = 0.0;        // SGD
    bool nesterov = false;         // SGD
    double lr_decay = 0.0;  // Adagrad: update u (from 1) has the rate lr / (1 + (u - 1) * lr_decay)
    double initial_accumulator_value = 0.0;  // Adagrad
    // LAMB: the smallest and the largest ratio of a tensor's norm to the norm of its update.
    double min_coeff = 0.01;
    double max_coeff = 10.0;
    NewtonSchulz newton_schulz = NewtonSchulz::kGram;  // Muon
    double rest_lr = 1e-3;  // Muon: AdamW's rate, for parameters other than hidden matrices

    OneBitConfig one_bit;  // OneBitAdam, ZeroOneAdam, OneBitLamb
    AdafactorConfig adafactor;

    // Returns true if hosts exchange a compressed form instead of whole gradients.
    [[nodiscard]] bool compresses() const { return facts_of(kind).compresses; }
    // Returns true if weight decay is added to the gradient and thus enters the optimizer states;
    // the other optimizers apply the decay to the parameters directly.
    [[nodiscard]] bool decays_gradient() const {
        return weight_decay != 0 && facts_of(kind).decays_gradient;
    }
    // Returns true if the update of an element depends on all other elements of its tensor.
    [[nodiscard]] bool needs_whole_tensors() const { return facts_of(kind).needs_whole_tensors; }

    bool operator==(const OptimizerConfig&) const = default;
};

// dslaunch.optimizer.groups: parameters with settings of their own. A setting that is not set is
// taken from the optimizer.
struct ParameterGroup {
    std::vector<std::string> match;  // names of parameters, `*` for any characters
    std::optional<double> lr;        // schedules scale it like the optimizer's rate
    std::optional<double> weight_decay;
    std::optional<double> beta1, beta2;
    std::optional<double> eps;
    std::optional<bool> muon;  // with Muon: true for updates by Muon, false for AdamW

    bool operator==(const ParameterGroup&) const = default;
};

}  // namespace dslaunch::config
