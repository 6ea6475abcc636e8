// Finds the parameter at the end of an autograd graph. This file is separate because the header of
// AccumulateGrad includes every operator, which takes 15 s to compile.
#pragma once

#include <c10/core/TensorImpl.h>

namespace torch::autograd {
struct Node;
}

namespace dslaunch::zero {

// Returns the parameter whose gradient NODE accumulates, or nullptr if NODE is not an
// AccumulateGrad.
[[nodiscard]] const c10::TensorImpl* leaf_of(const torch::autograd::Node& node);

}  // namespace dslaunch::zero
