// Brings the final weights of a state into the tensors of a model.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "base/check.h"
#include "graph/archive/model.h"
#include "runtime/state/savable_state.h"

namespace dslaunch::testing {

using namespace graph;
using namespace runtime;

// Puts the weights that a state keeps elsewhere into tensors of their own.
inline void bring_into_model(SavableState& state, Model& model) {
    const std::vector<int> elsewhere = state.parameters_elsewhere();
    std::set<int> missing(elsewhere.begin(), elsewhere.end());
    state.bring_weights([&](int parameter, std::span<const float> values) {
        DSL_CHECK(missing.erase(parameter) == 1, "parameter {} is not elsewhere, or came twice",
                  parameter);
        const at::NoGradGuard no_grad;
        at::Tensor tensor = model.parameters()[parameter].tensor;
        at::Tensor own = at::empty_strided(tensor.sizes(), tensor.strides(),
                                           tensor.options().dtype(at::kFloat).device(at::kCPU));
        std::copy(values.begin(), values.end(), own.data_ptr<float>());
        tensor.set_data(own);
    });
    DSL_CHECK(missing.empty(), "{} parameters did not come", missing.size());
}

}  // namespace dslaunch::testing
