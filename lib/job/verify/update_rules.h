// The optimizers' formulas once more, in fp64: the result of an update, to within the rounding of
// fp32, for an element, and for a tensor if the optimizer updates whole tensors. Feeds
// job_verifier.h. Sources: as in kernels/flat_optimizer.h and zero/states/tensor_optimizer.h. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>

#include "config/run/run_config.h"

namespace dslaunch::job {

// An element's fp32 values before an update or after it.
struct ElementValues {
    double parameter = 0;
    double first = 0, second = 0;  // states; 0 where the optimizer has none
};

struct UpdateFacts {
    double gradient = 0;  // unscaled and clipped
    double lr = 0;
    int64_t update = 1;  // from 1
};

// Returns the distance between AFTER and what CONFIG's rule makes of BEFORE, as a multiple of what
// rounding explains: at most 1 is right. REQUIRES: CONFIG needs no whole tensors.
[[nodiscard]] double update_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                                  const ElementValues& before, const ElementValues& after);

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
