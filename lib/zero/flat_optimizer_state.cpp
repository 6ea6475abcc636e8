#include "zero/flat_optimizer_state.h"

namespace dslaunch {

int64_t FlatOptimizerState::states_per_parameter(const OptimizerConfig& config) {
    if (config.kind == OptimizerKind::kSgd) return config.momentum != 0 ? 1 : 0;
    return 2;
}

FlatOptimizerState::FlatOptimizerState(const OptimizerConfig& config, int64_t numel)
    : config_(config) {
    if (states_per_parameter(config) >= 1) first_ = ZeroedFloats(numel);
    if (states_per_parameter(config) >= 2) second_ = ZeroedFloats(numel);
}

void FlatOptimizerState::update(const Piece& piece, double lr, int64_t step) {
    const auto offset = static_cast<size_t>(piece.offset_numel);
    if (config_.kind == OptimizerKind::kSgd) {
        const SgdStep sgd{
            lr,       config_.momentum, config_.dampening, config_.weight_decay, config_.nesterov,
            step == 1};
        sgd_step(piece.range, sgd, first().empty() ? nullptr : first_.values().data() + offset);
        return;
    }
    AdamStep adam;
    adam.lr = lr;
    adam.beta1 = config_.beta1;
    adam.beta2 = config_.beta2;
    adam.eps = config_.eps;
    adam.weight_decay = config_.weight_decay;
    adam.decoupled_decay = config_.kind == OptimizerKind::kAdamW;
    adam.bias_correction = config_.bias_correction;
    adam.step = step;
    adam_step(piece.range, adam, first_.values().data() + offset, second_.values().data() + offset);
}

}  // namespace dslaunch
