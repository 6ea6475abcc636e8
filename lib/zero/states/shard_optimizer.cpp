#include "zero/states/shard_optimizer.h"

#include "base/check.h"
#include "zero/states/tensor_states.h"

namespace dslaunch::zero {

int64_t ShardOptimizer::states_per_parameter(const config::OptimizerConfig& config) {
    switch (config.kind) {
        case config::OptimizerKind::kAdam:
        case config::OptimizerKind::kAdamW:
        case config::OptimizerKind::kLamb:
        case config::OptimizerKind::kMuon:
        case config::OptimizerKind::kOneBitAdam:
        case config::OptimizerKind::kZeroOneAdam:
        case config::OptimizerKind::kOneBitLamb:
            return 2;
        case config::OptimizerKind::kAdafactor:
            return config.adafactor.first_moment ? 1 : 0;
        case config::OptimizerKind::kAdagrad:
        case config::OptimizerKind::kLion:
            return 1;
        case config::OptimizerKind::kSgd:
            break;
    }
    return config.momentum != 0 ? 1 : 0;
}

std::string ShardOptimizer::name(const config::OptimizerConfig& config) {
    switch (config.kind) {
        case config::OptimizerKind::kAdam:
            return "adam";
        case config::OptimizerKind::kAdamW:
            return "adamw";
        case config::OptimizerKind::kSgd:
            return "sgd";
        case config::OptimizerKind::kAdagrad:
            return "adagrad";
        case config::OptimizerKind::kLion:
            return "lion";
        case config::OptimizerKind::kLamb:
            return "lamb";
        case config::OptimizerKind::kMuon:
            return "muon";
        case config::OptimizerKind::kOneBitAdam:
            return "onebitadam";
        case config::OptimizerKind::kZeroOneAdam:
            return "zerooneadam";
        case config::OptimizerKind::kOneBitLamb:
            return "onebitlamb";
        case config::OptimizerKind::kAdafactor:
            return "adafactor";
    }
    DSL_CHECK(false, "optimizer {}", static_cast<int>(config.kind));
}

std::vector<std::string> ShardOptimizer::state_names(const config::OptimizerConfig& config) {
    if (config.kind == config::OptimizerKind::kAdafactor) {
        std::vector<std::string> names = tensor_state_names(config);
        if (config.adafactor.first_moment) names.insert(names.begin(), "exp_avg");
        return names;
    }
    if (states_per_parameter(config) == 0) return {};
    switch (config.kind) {
        case config::OptimizerKind::kAdam:
        case config::OptimizerKind::kAdamW:
        case config::OptimizerKind::kLamb:
        case config::OptimizerKind::kMuon:
        case config::OptimizerKind::kOneBitAdam:
        case config::OptimizerKind::kZeroOneAdam:
        case config::OptimizerKind::kOneBitLamb:
            return {"exp_avg", "exp_avg_sq"};
        case config::OptimizerKind::kAdafactor:
            break;
        case config::OptimizerKind::kSgd:
            return {"momentum_buffer"};
        case config::OptimizerKind::kAdagrad:
            return {"sum"};
        case config::OptimizerKind::kLion:
            return {"exp_avg"};
    }
    DSL_CHECK(false, "optimizer {}", static_cast<int>(config.kind));
}

bool ShardOptimizer::is_square(const config::OptimizerConfig& config, size_t k) {
    return k == 1 || config.kind == config::OptimizerKind::kAdagrad;
}

float ShardOptimizer::initial_state(const config::OptimizerConfig& config) {
    return config.kind == config::OptimizerKind::kAdagrad
               ? static_cast<float>(config.initial_accumulator_value)
               : 0.0F;
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
            .decoupled_decay = config_.kind == config::OptimizerKind::kAdamW,
            .bias_correction = config_.bias_correction,
            .step = step,
            .steps = steps};
}

void ShardOptimizer::mix(const kernels::FlatRange& range,
                         const std::optional<config::Betas>& betas) {
    DSL_CHECK(config_.compresses() && range.parameters.empty(), "momenta are not mixed alone");
    queue_.adam_step(range, without_correction(0, betas ? betas->beta1 : config_.beta1));
}

void ShardOptimizer::update(kernels::FlatRange range, double lr, int64_t step,
                            const std::optional<config::Betas>& betas, plan::Exchange exchange) {
    if (config_.maximize) range.gradient_scale = -range.gradient_scale;
    const double beta1 = betas ? betas->beta1 : config_.beta1;
    const double beta2 = betas ? betas->beta2 : config_.beta2;
    switch (config_.kind) {
        case config::OptimizerKind::kAdam:
        case config::OptimizerKind::kAdamW:
            return queue_.adam_step(range, adam(lr, step, betas));
        case config::OptimizerKind::kOneBitAdam:
        case config::OptimizerKind::kZeroOneAdam: {
            kernels::AdamStep adam =
                without_correction(lr, exchange == plan::Exchange::kMomentum ? 0 : beta1);
            adam.beta2 = beta2;
            adam.frozen_variance = exchange != plan::Exchange::kExact;
            return queue_.adam_step(range, adam);
        }
        case config::OptimizerKind::kAdagrad:
            return queue_.adagrad_step(range, {.lr = lr,
                                               .lr_decay = config_.lr_decay,
                                               .eps = config_.eps,
                                               .weight_decay = config_.weight_decay,
                                               .step = step});
        case config::OptimizerKind::kLion:
            return queue_.lion_step(
                range,
                {.lr = lr, .beta1 = beta1, .beta2 = beta2, .weight_decay = config_.weight_decay});
        case config::OptimizerKind::kSgd:
            return queue_.sgd_step(range, {.lr = lr,
                                           .momentum = config_.momentum,
                                           .dampening = config_.dampening,
                                           .weight_decay = config_.weight_decay,
                                           .nesterov = config_.nesterov,
                                           .first_step = step == 1});
        case config::OptimizerKind::kLamb:
        case config::OptimizerKind::kMuon:
        case config::OptimizerKind::kAdafactor:
        case config::OptimizerKind::kOneBitLamb:
            break;
    }
    DSL_CHECK(false, "{} updates whole tensors", name(config_));
}

}  // namespace dslaunch::zero
