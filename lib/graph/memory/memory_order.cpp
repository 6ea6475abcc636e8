#include "graph/memory/memory_order.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

namespace dslaunch::graph {

at::Tensor in_memory_order(const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach();
    if (plain.is_non_overlapping_and_dense())
        return plain.as_strided({plain.numel()}, {1}, plain.storage_offset());
    return plain.contiguous().view({-1});
}

std::vector<int64_t> strides_in_memory(const at::Tensor& tensor) {
    if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return {};
    return tensor.strides().vec();
}

at::Tensor like_in_memory(const at::Tensor& tensor) {
    const std::vector<int64_t> strides = strides_in_memory(tensor);
    const auto options = at::TensorOptions(tensor.scalar_type()).device(at::kMeta);
    return strides.empty() ? at::empty(tensor.sizes(), options)
                           : at::empty_strided(tensor.sizes(), strides, options);
}

at::Tensor as_in_memory(const float* data, const at::Tensor& like,
                        const std::function<void(void*)>& let_go) {
    const std::vector<int64_t> strides = strides_in_memory(like);
    auto* const elements = const_cast<float*>(data);
    return strides.empty() ? at::from_blob(elements, like.sizes(), let_go, at::kFloat)
                           : at::from_blob(elements, like.sizes(), strides, let_go, at::kFloat);
}

}  // namespace dslaunch::graph
