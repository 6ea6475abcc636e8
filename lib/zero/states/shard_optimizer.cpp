#include "zero/states/shard_optimizer.h"

#include <utility>

#include "base/check.h"
#include "zero/states/tensor_states.h"

namespace dslaunch::zero {

namespace {

using config::OptimizerKind;

std::vector<std::string> moments_of(const config::OptimizerConfig& config) {
    if (config.kind == OptimizerKind::kSgd && config.momentum == 0) return {};
    if (config.kind == OptimizerKind::kAdafactor && !config.adafactor.first_moment) return {};
    std::vector<std::string> names;
    for (const std::string_view name : config::facts_of(config.kind).moments)
        if (!name.empty()) names.emplace_back(name);
    if (config.amsgrad) names.emplace_back("max_exp_avg_sq");
    return names;
}

}  // namespace

int64_t ShardOptimizer::states_per_parameter(const config::OptimizerConfig& config) {
    return std::ssize(moments_of(config));
}

std::string ShardOptimizer::name(const config::OptimizerConfig& config) {
    return std::string(config::facts_of(config.kind).name);
}

std::vector<std::string> ShardOptimizer::state_names(const config::OptimizerConfig& config) {
    std::vector<std::string> names = moments_of(config);
    if (config.kind == OptimizerKind::kAdafactor)
        for (std::string& name : tensor_state_names(config)) names.push_back(std::move(name));
    return names;
}

bool ShardOptimizer::is_square(const config::OptimizerConfig& config, size_t k) {
    return k > 0 || config::facts_of(config.kind).first_is_square;
}

float ShardOptimizer::initial_state(const config::OptimizerConfig& config) {
    return static_cast<float>(config.initial_accumulator_value);
}

kernels::AdamStep ShardOptimizer::without_correction(double lr, double beta1) const {
    return {.lr = lr,
            .beta1 = beta1,
            .beta2 = config_.beta2,
            .eps = config_.eps,
            .weight_decay = config_.weight_decay,
            .decoupled_decay = true,
            .bias_correction = false,
            .frozen_variance = true};
}

kernels::AdamStep ShardOptimizer::adam(double lr, int64_t step,
                                       const std::optional<config::Betas>& betas,
                                       int64_t steps) const {
    return {.lr = lr,
            .beta1 = betas ? betas->beta1 : config_.beta1,
            .beta2 = betas ? betas->beta2 : config_.beta2,
            .eps = config_.eps,
            .weight_decay = config_.weight_decay,
            .decoupled_decay = !config::facts_of(config_.kind).decays_gradient,
            .bias_correction = config_.bias_correction,
            .step = step,
            .steps = steps,
            .amsgrad = config_.amsgrad};
}

void ShardOptimizer::mix(const kernels::FlatRange& range,
                         const std::optional<config::Betas>& betas) {
    DSL_CHECK(config_.compresses() && range.parameters.empty(),
              "only an optimizer with compression can update its momenta without its parameters");
    queue_.adam_step(range, without_correction(0, betas ? betas->beta1 : config_.beta1));
}

void ShardOptimizer::update(kernels::FlatRange range, double lr, int64_t step,
                            const std::optional<config::Betas>& betas, plan::Exchange exchange) {
    if (config_.maximize) range.gradient_scale = -range.gradient_scale;
    const double beta1 = betas ? betas->beta1 : config_.beta1;
    const double beta2 = betas ? betas->beta2 : config_.beta2;
    switch (config_.kind) {
        case OptimizerKind::kAdam:
        case OptimizerKind::kAdamW:
            return queue_.adam_step(range, adam(lr, step, betas));
        case OptimizerKind::kOneBitAdam:
        case OptimizerKind::kZeroOneAdam: {
            kernels::AdamStep adam =
                without_correction(lr, exchange == plan::Exchange::kMomentum ? 0 : beta1);
            adam.beta2 = beta2;
            adam.frozen_variance = exchange != plan::Exchange::kExact;
            return queue_.adam_step(range, adam);
        }
        case OptimizerKind::kAdagrad:
            return queue_.adagrad_step(range, {.lr = lr,
                                               .lr_decay = config_.lr_decay,
                                               .eps = config_.eps,
                                               .weight_decay = config_.weight_decay,
                                               .step = step});
        case OptimizerKind::kLion:
            return queue_.lion_step(
                range,
                {.lr = lr, .beta1 = beta1, .beta2 = beta2, .weight_decay = config_.weight_decay});
        case OptimizerKind::kSgd:
            return queue_.sgd_step(range, {.lr = lr,
                                           .momentum = config_.momentum,
                                           .dampening = config_.dampening,
                                           .weight_decay = config_.weight_decay,
                                           .nesterov = config_.nesterov,
                                           .first_step = step == 1});
        case OptimizerKind::kLamb:
        case OptimizerKind::kMuon:
        case OptimizerKind::kAdafactor:
        case OptimizerKind::kOneBitLamb:
            break;
    }
    DSL_CHECK(false, "{} can update only whole tensors", name(config_));
}

}  // namespace dslaunch::zero
