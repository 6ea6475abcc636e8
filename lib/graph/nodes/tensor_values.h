// Access to the tensors in values of TorchScript: in lists, tuples and dicts. No state; any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Calls USE with every defined tensor in VALUE, once for each occurrence. Does not look into
// objects.
void for_each_tensor(const IValue& value, const std::function<void(const at::Tensor&)>& use);
// Calls USE with the defined tensors of a module and of the objects in it, each object once.
void for_each_tensor_of_object(const IValue& object,
                               const std::function<void(const at::Tensor&)>& use);

// Returns a copy of VALUE in which MAP's results replace all tensors. Objects are not copied.
[[nodiscard]] IValue map_tensors(const IValue& value,
                                 const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace dslaunch::graph
