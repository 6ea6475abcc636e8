// How far one order of sums may be from another, for comparisons of verify. No state.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dslaunch::job {

// Rounding differs between orders of sums; so many times what one order is off by is allowed.
inline constexpr double kOrders = 8;

// The same for a tensor of NUMEL elements, whose largest error is the measure: one element may by
// luck be nearly exact, all of several hardly. The ratio of two errors of normal distribution is
// above 6000 once in 10^4 times, and that of one to the largest of N above the N-th root of that.
inline double orders_of(int64_t numel) {
    constexpr double kOfOne = 6000;
    return std::max(kOrders,
                    std::pow(kOfOne, 1.0 / static_cast<double>(std::max<int64_t>(1, numel))));
}

// Returns floating ones in fp64, others as they are; without gradient.
inline at::Tensor to_double(const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.detach().to(at::kDouble) : tensor.detach();
}

// Returns the largest magnitude; 0 of no elements.
inline double largest(const at::Tensor& tensor) {
    return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

}  // namespace dslaunch::job
