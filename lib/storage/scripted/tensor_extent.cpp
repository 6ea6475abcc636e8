#include "storage/scripted/tensor_extent.h"

#include <algorithm>

namespace dslaunch::storage {

namespace {

// Elements of 16 bytes can be counted in bytes without overflow.
constexpr int64_t kElementsMax = int64_t{1} << 56;

bool is_countable(int64_t number) {
    return number >= 0 && number < kElementsMax;
}

}  // namespace

std::optional<TensorExtent> tensor_extent(int64_t offset, std::span<const int64_t> sizes,
                                          std::span<const int64_t> strides) {
    if (sizes.size() != strides.size() || std::ssize(sizes) > kTensorDimsMax ||
        !is_countable(offset) || !std::ranges::all_of(sizes, is_countable) ||
        !std::ranges::all_of(strides, is_countable))
        return std::nullopt;
    if (std::ranges::count(sizes, 0) > 0) return TensorExtent{offset, 0};
    TensorExtent extent{offset, 1};
    for (size_t d = 0; d < sizes.size(); ++d) {
        int64_t step = 0;
        if (__builtin_mul_overflow(strides[d], sizes[d] - 1, &step) ||
            __builtin_add_overflow(extent.reach, step, &extent.reach) ||
            __builtin_mul_overflow(extent.numel, sizes[d], &extent.numel) ||
            !is_countable(extent.reach) || !is_countable(extent.numel))
            return std::nullopt;
    }
    ++extent.reach;
    return extent;
}

}  // namespace dslaunch::storage
