// A parameter's place in a flat buffer, seen as the parameter. Data path: flat layout -> [here] ->
// parameter store, gradient sums. Pure.
#pragma once

#include <ATen/ops/from_blob.h>

namespace dslaunch::zero {

// Returns a view of TENSOR.numel() elements of TYPE at DATA, which must outlive it. The view has
// TENSOR's own strides if they fill its elements without gaps, else plain rows.
inline at::Tensor view_like(const at::Tensor& tensor, void* data, at::ScalarType type) {
    const at::TensorOptions options = at::TensorOptions().dtype(type);
    if (tensor.is_non_overlapping_and_dense())
        return at::from_blob(data, tensor.sizes(), tensor.strides(), options);
    return at::from_blob(data, tensor.sizes(), options);
}

}  // namespace dslaunch::zero
