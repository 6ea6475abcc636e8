// Comparison of numbers for the tests of the kernels, and the instruction sets of this processor.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/flat_optimizer.h"

namespace dslaunch::test {

inline std::vector<kernels::Isa> available() {
    std::vector<kernels::Isa> out;
    for (const kernels::Isa isa : kernels::kIsas)
        if (kernels::isa_available(isa)) out.push_back(isa);
    return out;
}

// Returns the largest magnitude in the block of element I. Blocks have BLOCK_NUMEL elements.
inline float largest_of_block(const std::vector<float>& values, size_t i, size_t block_numel) {
    const size_t first = i / block_numel * block_numel;
    float largest = 0;
    for (size_t k = first; k < std::min(first + block_numel, values.size()); ++k)
        largest = std::max(largest, std::fabs(values[k]));
    return largest;
}

// Returns the value of a 16-bit number, in fp64.
inline double meaning(uint16_t half, DType dtype) {
    const int mantissa_bits = dtype == DType::kBF16 ? 7 : 10;
    const int exponent_min = dtype == DType::kBF16 ? -126 : -14;
    const int field = (half & 0x7FFF) >> mantissa_bits;
    const int mantissa = half & ((1 << mantissa_bits) - 1);
    const double sign = (half & 0x8000) != 0 ? -1 : 1;
    if (field == 0x7FFF >> mantissa_bits)
        return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
    const int places = field == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    return sign * std::ldexp(places, exponent_min + std::max(field, 1) - 1 - mantissa_bits);
}

// Returns true if A and B have equal bits. A NaN equals every other NaN.
inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return std::ranges::equal(a, b, [](float x, float y) {
        return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) ||
               (std::isnan(x) && std::isnan(y));
    });
}

}  // namespace dslaunch::test
