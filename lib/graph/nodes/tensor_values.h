// Tensors in values of TorchScript: in lists, tuples and dicts. No state; any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Calls USE with every defined tensor in VALUE, as often as it is there. Does not look into
// objects.
void for_each_tensor(const IValue& value, const std::function<void(const at::Tensor&)>& use);
// Does the same for a module and the objects in it, each once.
void for_each_tensor_of_object(const IValue& object,
                               const std::function<void(const at::Tensor&)>& use);

// Returns VALUE rebuilt with every tensor inside replaced by MAP's result for it. Objects stay.
[[nodiscard]] IValue map_tensors(const IValue& value,
                                 const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace dslaunch::graph
