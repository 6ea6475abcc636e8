#include "graph/lower/parameters_as.h"

#include <ATen/core/grad_mode.h>

#include "graph/archive/scalar_types.h"

namespace dslaunch::graph {

ParametersAs::ParametersAs(const Model& model, std::span<const int> parameters,
                           const LoweredGraph& lowered) {
    const at::NoGradGuard no_grad;
    for (const int parameter : parameters) {
        at::Tensor tensor = model.parameters()[parameter].tensor;
        const at::ScalarType dtype =
            is_trained_type(tensor.scalar_type()) ? lowered.parameter_dtype : tensor.scalar_type();
        if (tensor.scalar_type() == dtype && tensor.device() == lowered.device) continue;
        tensors_.push_back(tensor);
        before_.push_back(tensor.detach());
        // The cast runs before the move, so that the device never stores more than it needs.
        brought_.push_back(before_.back().to(dtype).to(lowered.device));
        tensor.set_data(brought_.back());
    }
}

ParametersAs::~ParametersAs() {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].set_data(before_[i]);
}

}  // namespace dslaunch::graph
