// The element types of files and of LibTorch beside each other. Used by the archives' readers and
// where a run's precision is decided. Pure.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "base/kinds/dtype.h"

namespace dslaunch::graph {

// Returns LibTorch's name of an element type.
[[nodiscard]] at::ScalarType scalar_type_of(DType dtype);
// Returns true for fp32 and floats of 16 bits: a run casts them to the type that it computes in,
// and parameters of no other type can be trained.
[[nodiscard]] bool is_trained_type(at::ScalarType dtype);
// Returns TENSOR's element type. Throws Error{kInput} with NAME if files cannot hold that type.
[[nodiscard]] DType dtype_of(const std::string& name, const at::Tensor& tensor);

}  // namespace dslaunch::graph
