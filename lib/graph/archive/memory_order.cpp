#include "graph/archive/memory_order.h"

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

}  // namespace dslaunch::graph
