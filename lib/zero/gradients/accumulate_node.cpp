#include "zero/gradients/accumulate_node.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace dslaunch::zero {

const c10::TensorImpl* leaf_of(const torch::autograd::Node& node) {
    const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
    return end == nullptr ? nullptr : end->variable.unsafeGetTensorImpl();
}

}  // namespace dslaunch::zero
