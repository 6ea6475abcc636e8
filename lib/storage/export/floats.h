// Converts elements of files to doubles, and doubles to elements with fewer bits. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/kinds/dtype.h"

namespace dslaunch::storage {

// Returns true for F16, BF16, F32, F64.
[[nodiscard]] bool is_floating(DType dtype);

// Reads every element of BYTES as one number, or as two numbers if it is complex. Integers beyond
// 2^53 are rounded. VALUES gets as many elements as BYTES has numbers.
void to_doubles(std::span<const std::byte> bytes, DType dtype, std::vector<double>& values);

// Writes VALUES to OUT in the floating type DTYPE, little-endian, rounded to nearest even. A finite
// value that overflows DTYPE becomes an infinity. Returns the index of the first value that
// overflows, or -1 if there is none.
[[nodiscard]] int64_t from_doubles(std::span<const double> values, DType dtype,
                                   std::vector<std::byte>& out);

}  // namespace dslaunch::storage
