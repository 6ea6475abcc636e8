// The optimizers with which the tests of this folder train.
#pragma once

#include "config/run/run_config.h"

namespace dslaunch::testing {

using config::OptimizerConfig;
using config::OptimizerKind;

inline OptimizerConfig optimizer(OptimizerKind kind, double weight_decay) {
    OptimizerConfig config;
    config.kind = kind;
    config.lr = kind == OptimizerKind::kSgd ? 0.1 : 0.01;
    config.weight_decay = weight_decay;
    return config;
}

inline OptimizerConfig momentum_sgd(double momentum, double dampening, bool nesterov) {
    OptimizerConfig config = optimizer(OptimizerKind::kSgd, 0.02);
    config.momentum = momentum;
    config.dampening = dampening;
    config.nesterov = nesterov;
    return config;
}

inline const OptimizerConfig kAdamW = optimizer(OptimizerKind::kAdamW, 0.1);
inline const OptimizerConfig kAdamL2 = optimizer(OptimizerKind::kAdam, 0.1);
// beta2 is small, so that second moments fall after they have risen.
inline const OptimizerConfig kAmsgrad = [] {
    OptimizerConfig config = optimizer(OptimizerKind::kAdamW, 0.1);
    config.beta2 = 0.5;
    config.amsgrad = true;
    return config;
}();
inline const OptimizerConfig kAdagrad = [] {
    OptimizerConfig config = optimizer(OptimizerKind::kAdagrad, 0.1);
    config.lr_decay = 0.2;
    config.initial_accumulator_value = 0.3;
    return config;
}();
inline const OptimizerConfig kLion = optimizer(OptimizerKind::kLion, 0.1);
inline const OptimizerConfig kSgd = optimizer(OptimizerKind::kSgd, 0.02);

}  // namespace dslaunch::testing
