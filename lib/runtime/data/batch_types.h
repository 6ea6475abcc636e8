// The elements of data files as elements of tensors. Pure functions.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/kinds/dtype.h"

namespace dslaunch::runtime {

// Returns the dtype of a column in a batch: integers int64, floats float32, bool bool. Returns
// nullopt for uint64, which LibTorch's operators do not take.
[[nodiscard]] std::optional<c10::ScalarType> batch_dtype(DType dtype);

// Converts FROM, elements of one dtype, little-endian, at any alignment, to as many elements of TO
// at INTO. REQUIRES: TO is batch_dtype(dtype), or float32.
void convert_elements(DType dtype, std::span<const std::byte> from, c10::ScalarType to,
                      std::byte* into);

// Returns FROM[index] as int64. REQUIRES: an integer dtype other than uint64; INDEX is inside FROM.
[[nodiscard]] int64_t integer_at(DType dtype, std::span<const std::byte> from, int64_t index);

}  // namespace dslaunch::runtime
