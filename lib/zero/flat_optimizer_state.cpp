#include "zero/flat_optimizer_state.h"

#include <algorithm>

namespace dslaunch {

namespace {

// Of an array that may be missing.
std::span<float> part_of(std::span<float> values, int64_t offset_numel, int64_t numel) {
    if (values.empty()) return {};
    return values.subspan(static_cast<size_t>(offset_numel), static_cast<size_t>(numel));
}

}  // namespace

int64_t FlatOptimizerState::states_per_parameter(const OptimizerConfig& config) {
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

FlatOptimizerState::FlatOptimizerState(const OptimizerConfig& config, int64_t numel, int threads)
    : config_(config), team_(std::make_unique<ThreadTeam>(threads)) {
    if (states_per_parameter(config) >= 1) first_ = ZeroedFloats(numel);
    if (states_per_parameter(config) >= 2) second_ = ZeroedFloats(numel);
    if (config.kind == OptimizerKind::kAdagrad && config.initial_accumulator_value != 0)
        std::ranges::fill(first_.values(), static_cast<float>(config.initial_accumulator_value));
}

void FlatOptimizerState::update(const Piece& piece, double lr, int64_t step) {
    FlatRange whole = piece.range;
    whole.first = part_of(first_.values(), piece.offset_numel, whole.numel);
    whole.second = part_of(second_.values(), piece.offset_numel, whole.numel);
    team_->for_parts(whole.numel, [&](int64_t begin, int64_t numel) {
        FlatRange part = whole;
        part.begin = begin;
        part.numel = numel;
        update_part(part, lr, step);
    });
}

void FlatOptimizerState::update_part(const FlatRange& range, double lr, int64_t step) const {
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
