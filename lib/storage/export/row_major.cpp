#include "storage/export/row_major.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;

// Returns the strides, in elements, that the tensor would have without the gaps between its
// elements.
std::vector<int64_t> packed_strides(const CheckpointTensor& tensor) {
    const size_t dimensions = tensor.shape.size();
    std::vector<size_t> order(dimensions);
    std::iota(order.begin(), order.end(), size_t{0});
    DSL_CHECK(tensor.strides.empty() || tensor.strides.size() == dimensions,
              "tensor {} has {} strides, but {} dimensions", tensor.name, tensor.strides.size(),
              dimensions);
    // The stride of a dimension with one element has no meaning.
    const auto before = [&](size_t a, size_t b) {
        const bool a_single = tensor.shape[a] == 1;
        const bool b_single = tensor.shape[b] == 1;
        if (a_single != b_single) return a_single;
        return !a_single && tensor.strides[a] > tensor.strides[b];
    };
    if (!tensor.strides.empty()) std::stable_sort(order.begin(), order.end(), before);
    std::vector<int64_t> packed(dimensions);
    int64_t stride = 1;
    for (size_t i = dimensions; i-- > 0;) {
        packed[order[i]] = stride;
        stride *= tensor.shape[order[i]];
    }
    return packed;
}

}  // namespace

bool is_row_major(const CheckpointTensor& tensor) {
    if (tensor.strides.empty() || tensor.numel() <= 1) return true;
    const std::vector<int64_t> packed = packed_strides(tensor);
    int64_t stride = 1;
    for (size_t i = tensor.shape.size(); i-- > 0;) {
        if (tensor.shape[i] != 1 && packed[i] != stride) return false;
        stride *= tensor.shape[i];
    }
    return true;
}

std::vector<int64_t> index_of(const CheckpointTensor& tensor, int64_t place) {
    const std::vector<int64_t> strides = packed_strides(tensor);
    std::vector<int64_t> index(strides.size());
    for (size_t i = 0; i < index.size(); ++i) index[i] = place / strides[i] % tensor.shape[i];
    return index;
}

void for_each_row_major(const CheckpointTensor& tensor, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use) {
    if (is_row_major(tensor)) return use(memory);
    for_each_row_major(CheckpointView{tensor.name, tensor.shape, packed_strides(tensor)}, memory,
                       element_bytes, use);
}

void for_each_row_major(const CheckpointView& view, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use) {
    const auto width = static_cast<size_t>(element_bytes);
    std::vector<int64_t> index(view.shape.size());
    std::vector<std::byte> part;
    part.reserve(kPartBytes);
    int64_t place = view.offset;
    const int64_t numel = view.numel();
    for (int64_t element = 0; element < numel; ++element) {
        const auto from = memory.subspan(static_cast<size_t>(place) * width, width);
        part.insert(part.end(), from.begin(), from.end());
        if (part.size() + width > kPartBytes) {
            use(part);
            part.clear();
        }
        for (size_t i = index.size(); i-- > 0;) {
            place += view.strides[i];
            if (++index[i] < view.shape[i]) break;
            place -= view.strides[i] * view.shape[i];
            index[i] = 0;
        }
    }
    if (!part.empty()) use(part);
}

}  // namespace dslaunch::storage
