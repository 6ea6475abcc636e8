#include "graph/memory/memory_order.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

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

}  // namespace dslaunch::graph
