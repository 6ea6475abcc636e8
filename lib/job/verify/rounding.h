// Bounds of the difference that rounding makes between two orders of a sum. Used by verify. No
// state.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dslaunch::job {

// Rounding differs between orders of sums; so many times what one order is off by is allowed.
inline constexpr double kOrders = 8;

// Returns kOrders for a tensor of NUMEL elements, more for a few. The bound is a multiple of the
// largest error in the tensor. One element may by luck be nearly exact; several hardly all are. The
// ratio of two normally distributed errors is above 6000 once in 10^4 times, and the ratio of one
// error to the largest of N is then above the N-th root of 6000.
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
