// Elements of files as floating-point numbers, and numbers as elements of fewer bits. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/kinds/dtype.h"

namespace dslaunch::storage {

// True for F16, BF16, F32, F64.
[[nodiscard]] bool is_floating(DType dtype);

// Reads every element of BYTES as a number, a complex one as two; integers beyond 2^53 are rounded.
// VALUES becomes as long as BYTES has numbers.
void to_doubles(std::span<const std::byte> bytes, DType dtype, std::vector<double>& values);

// Writes VALUES in the floating type DTYPE, little-endian, rounded to nearest even; OUT becomes as
// long. Returns the index of the first finite value that overflows DTYPE, -1: none; its element is
// an infinity.
[[nodiscard]] int64_t from_doubles(std::span<const double> values, DType dtype,
                                   std::vector<std::byte>& out);

}  // namespace dslaunch::storage
