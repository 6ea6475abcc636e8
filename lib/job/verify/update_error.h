// The optimizers' formulas, written a second time in fp64 to check updates. They give the result of
// an update to within the rounding of fp32: for a single element, or for a tensor if the optimizer
// updates whole tensors. Used by job_verifier.h. Sources: as in kernels/flat_optimizer.h and
// zero/states/tensor_optimizer.h. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>

#include "config/run/run_config.h"

namespace dslaunch::job {

// The fp32 values of an element before an update or after it.
struct ElementValues {
    double parameter = 0;
    double first = 0, second = 0, third = 0;  // states; 0 if the optimizer has no such state
};

// The inputs of one element's update, besides its values and the config.
struct UpdateFacts {
    double gradient = 0;  // unscaled and clipped
    double lr = 0;
    int64_t update = 1;  // from 1
};

// Returns the distance between AFTER and the result of CONFIG's rule for BEFORE, as a multiple of
// the distance that rounding explains. An update is correct if the result is at most 1. REQUIRES:
// CONFIG needs no whole tensors.
[[nodiscard]] double update_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                                  const ElementValues& before, const ElementValues& after);

// The fp32 values of a tensor before an update or after it, in the order of its memory.
struct TensorValues {
    std::span<const float> parameters, first, second;
    std::array<std::span<const float>, 3> factors = {};  // SeenUpdate::factors
};

// The inputs of a whole tensor's update, besides its values and the config.
struct TensorFacts {
    at::Tensor like;                   // has the tensor's sizes and strides
    std::span<const float> gradients;  // not yet multiplied by `factor`
    double factor = 1;
    double lr = 0;
    int64_t update = 1;  // from 1
};

// The largest error of an update, and its element.
struct TensorError {
    double error = 0;     // as update_error() defines it: at most 1 is correct
    int64_t element = 0;  // the element with this error
};

// Returns the largest error of an element, as update_error() defines it. REQUIRES: CONFIG needs
// whole tensors. BEFORE and AFTER are as long as the tensor.
[[nodiscard]] TensorError tensor_update_error(const config::OptimizerConfig& config,
                                              const TensorFacts& facts, const TensorValues& before,
                                              const TensorValues& after);

}  // namespace dslaunch::job
