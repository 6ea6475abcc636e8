// The formulas of optimizers that update whole tensors once more, in fp64: what an update of a
// tensor must come to. Beside update_rules.h, which has the optimizers that go element by element.
// Feeds job_verifier.h. Sources: as in zero/states/tensor_optimizer.h. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>

#include "config/run/run_config.h"
#include "job/verify/update_rules.h"

namespace dslaunch::job {

// A tensor's fp32 values before an update or after it, in the order of its memory.
struct TensorValues {
    std::span<const float> parameters, first, second;
    std::array<std::span<const float>, 3> factors = {};  // SeenUpdate::factors
};

struct TensorFacts {
    at::Tensor like;                   // has the tensor's sizes and strides
    std::span<const float> gradients;  // to be multiplied by FACTOR
    double factor = 1;
    double lr = 0;
    int64_t update = 1;  // from 1
};

struct TensorError {
    double error = 0;     // as update_error() has it: at most 1 is right
    int64_t element = 0;  // the one with it
};

// REQUIRES: CONFIG needs whole tensors. BEFORE and AFTER are as long as the tensor.
[[nodiscard]] TensorError tensor_update_error(const config::OptimizerConfig& config,
                                              const TensorFacts& facts, const TensorValues& before,
                                              const TensorValues& after);

}  // namespace dslaunch::job
