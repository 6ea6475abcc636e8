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
    const auto from = [offset](ZeroedFloats& states) {
        return states.values().empty() ? nullptr : states.values().data() + offset;
    };
    update_range(config_, piece.range, {from(first_), from(second_)}, lr, step);
}

void FlatOptimizerState::update_range(const OptimizerConfig& config, const FlatRange& range,
                                      const std::array<float*, 2>& states, double lr,
                                      int64_t step) {
    if (config.kind == OptimizerKind::kSgd) {
        const SgdStep sgd{lr,           config.momentum, config.dampening, config.weight_decay,
                          config.nesterov, step == 1};
        return sgd_step(range, sgd, states[0]);
    }
    AdamStep adam;
    adam.lr = lr;
    adam.beta1 = config.beta1;
    adam.beta2 = config.beta2;
    adam.eps = config.eps;
    adam.weight_decay = config.weight_decay;
    adam.decoupled_decay = config.kind == OptimizerKind::kAdamW;
    adam.bias_correction = config.bias_correction;
    adam.step = step;
    adam_step(range, adam, states[0], states[1]);
}

}  // namespace dslaunch
