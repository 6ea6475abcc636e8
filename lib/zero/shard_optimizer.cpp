#include "zero/shard_optimizer.h"

#include "base/check.h"

namespace dslaunch {

int64_t ShardOptimizer::states_per_parameter(const OptimizerConfig& config) {
    switch (config.kind) {
        case OptimizerKind::kAdam:
        case OptimizerKind::kAdamW:
            return 2;
        case OptimizerKind::kAdagrad:
        case OptimizerKind::kLion:
            return 1;
        case OptimizerKind::kSgd:
            break;
    }
    return config.momentum != 0 ? 1 : 0;
}

std::string ShardOptimizer::name(const OptimizerConfig& config) {
    switch (config.kind) {
        case OptimizerKind::kAdam:
            return "adam";
        case OptimizerKind::kAdamW:
            return "adamw";
        case OptimizerKind::kSgd:
            return "sgd";
        case OptimizerKind::kAdagrad:
            return "adagrad";
        case OptimizerKind::kLion:
            return "lion";
    }
    DSL_CHECK(false, "optimizer {}", static_cast<int>(config.kind));
}

std::vector<std::string> ShardOptimizer::state_names(const OptimizerConfig& config) {
    if (states_per_parameter(config) == 0) return {};
    switch (config.kind) {
        case OptimizerKind::kAdam:
        case OptimizerKind::kAdamW:
            return {"exp_avg", "exp_avg_sq"};
        case OptimizerKind::kSgd:
            return {"momentum_buffer"};
        case OptimizerKind::kAdagrad:
            return {"sum"};
        case OptimizerKind::kLion:
            return {"exp_avg"};
    }
    DSL_CHECK(false, "optimizer {}", static_cast<int>(config.kind));
}

bool ShardOptimizer::is_square(const OptimizerConfig& config, size_t k) {
    return k == 1 || config.kind == OptimizerKind::kAdagrad;
}

float ShardOptimizer::initial_state(const OptimizerConfig& config) {
    return config.kind == OptimizerKind::kAdagrad
               ? static_cast<float>(config.initial_accumulator_value)
               : 0.0F;
}

ShardOptimizer::ShardOptimizer(const OptimizerConfig& config, int threads)
    : config_(config), team_(std::make_unique<ThreadTeam>(threads)) {}

void ShardOptimizer::update(const FlatRange& range, double lr, int64_t step) {
    team_->for_parts(range.numel, [&](int64_t begin, int64_t numel) {
        FlatRange part = range;
        part.begin = begin;
        part.numel = numel;
        update_part(part, lr, step);
    });
}

void ShardOptimizer::update_part(const FlatRange& range, double lr, int64_t step) const {
    switch (config_.kind) {
        case OptimizerKind::kAdam:
        case OptimizerKind::kAdamW:
            return adam_step(range, {.lr = lr,
                                     .beta1 = config_.beta1,
                                     .beta2 = config_.beta2,
                                     .eps = config_.eps,
                                     .weight_decay = config_.weight_decay,
                                     .decoupled_decay = config_.kind == OptimizerKind::kAdamW,
                                     .bias_correction = config_.bias_correction,
                                     .step = step});
        case OptimizerKind::kAdagrad:
            return adagrad_step(range, {.lr = lr,
                                        .lr_decay = config_.lr_decay,
                                        .eps = config_.eps,
                                        .weight_decay = config_.weight_decay,
                                        .step = step});
        case OptimizerKind::kLion:
            return lion_step(range, {.lr = lr,
                                     .beta1 = config_.beta1,
                                     .beta2 = config_.beta2,
                                     .weight_decay = config_.weight_decay});
        case OptimizerKind::kSgd:
            return sgd_step(range, {.lr = lr,
                                    .momentum = config_.momentum,
                                    .dampening = config_.dampening,
                                    .weight_decay = config_.weight_decay,
                                    .nesterov = config_.nesterov,
                                    .first_step = step == 1});
    }
}

}  // namespace dslaunch
