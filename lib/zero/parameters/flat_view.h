// A parameter's place in a flat buffer, seen as the parameter. Data path: flat layout -> [here] ->
// parameter store, gradient sums. Pure.
#pragma once

#include <ATen/ops/from_blob.h>

namespace dslaunch::zero {

// Returns a view of TENSOR.numel() elements of TYPE at DATA. DATA is memory of DEVICE and must
// outlive the view. The view has TENSOR's strides if these fill its elements without gaps,
// otherwise row-major strides.
inline at::Tensor view_like(const at::Tensor& tensor, void* data, at::ScalarType type,
                            c10::Device device) {
    auto maker = at::for_blob(data, tensor.sizes());
    if (tensor.is_non_overlapping_and_dense()) maker.strides(tensor.strides());
    return maker.options(at::TensorOptions().dtype(type).device(device))
        .target_device(device)
        .make_tensor();
}

}  // namespace dslaunch::zero
