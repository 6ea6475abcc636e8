// The part of a storage that a strided tensor reaches. Whatever describes a tensor beside the bytes
// that it lies in is asked here before a byte is read. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dslaunch::storage {

// UNITS: elements. The tensor lies in a storage of `reach` elements or more, and has `numel`, which
// are more than the storage's where they share elements (stride 0).
struct TensorExtent {
    int64_t reach = 0;
    int64_t numel = 0;
};

// LibTorch takes no more dimensions in its operators.
inline constexpr int64_t kTensorDimsMax = 64;

// Nothing where a number is negative or too large to count with, the strides are not as many as the
// sizes, or the dimensions are more than the limit.
[[nodiscard]] std::optional<TensorExtent> tensor_extent(int64_t offset,
                                                        std::span<const int64_t> sizes,
                                                        std::span<const int64_t> strides);

}  // namespace dslaunch::storage
