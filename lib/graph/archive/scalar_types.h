// Maps the element types of files to LibTorch's and back. Used by the readers of archives, and
// where a run's precision is chosen. Pure.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "base/kinds/dtype.h"

namespace dslaunch::graph {

// Returns LibTorch's name for an element type.
[[nodiscard]] at::ScalarType scalar_type_of(DType dtype);
// Returns true for fp32 and 16-bit floats. A run casts them to the type that it computes in;
// parameters of other types cannot be trained.
[[nodiscard]] bool is_trained_type(at::ScalarType dtype);
// Returns TENSOR's element type. Throws Error{kInput} with NAME if files cannot store that type.
[[nodiscard]] DType dtype_of(const std::string& name, const at::Tensor& tensor);

}  // namespace dslaunch::graph
