// Access to the tensors in values of TorchScript: in lists, tuples and dicts. No state; any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Calls USE with every defined tensor in VALUE, once for each occurrence. Does not look into
// objects.
void for_each_tensor(const IValue& value, const std::function<void(const at::Tensor&)>& use);
// Does the same for a module and the objects in it, each of them once.
void for_each_tensor_of_object(const IValue& object,
                               const std::function<void(const at::Tensor&)>& use);

// Returns VALUE rebuilt, with MAP's result in place of every tensor. Objects are not rebuilt.
[[nodiscard]] IValue map_tensors(const IValue& value,
                                 const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace dslaunch::graph
