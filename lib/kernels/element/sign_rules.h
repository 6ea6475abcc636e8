// The arithmetic of one_bit.h on elements, alike on processors and GPUs. Everything here has
// internal linkage, as in update_rules.h.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "kernels/element/update_rules.h"

// NOLINTBEGIN(misc-definitions-in-headers): as in update_rules.h.
namespace dslaunch::kernels {
namespace {

// A value before its sign is taken: multiplied and rounded, then added and rounded.
DSL_HOST_DEVICE inline float corrected(float value, float factor, float error) {
    return value * factor + error;
}

DSL_HOST_DEVICE inline float signed_scale(bool positive, float scale) {
    return positive ? scale : -scale;
}

DSL_HOST_DEVICE inline float scale_of_squares(double squares, int64_t numel) {
#if defined(__CUDA_ARCH__)
    return static_cast<float>(__dsqrt_rn(squares / static_cast<double>(numel)));
#else
    return static_cast<float>(__builtin_sqrt(squares / static_cast<double>(numel)));
#endif
}

// The divisor of a move.
DSL_HOST_DEVICE inline float denominator_of(float variance, float eps) {
    return square_root(variance) + eps;
}

// 1-bit LAMB: the gradient of which MOMENTUM, after BEFORE, is the next mixture moves the variance
// that goes on (fresh_variance).
struct FreshNumbers {
    float beta1;
    float beta1_rest_inverse;  // 1 / (1 - beta1)
    float beta2;
    float beta2_rest;
    float eps;
};
DSL_HOST_DEVICE inline float fresher(float fresh, float before, float momentum,
                                     const FreshNumbers& numbers) {
    const float gradient = (momentum - numbers.beta1 * before) * numbers.beta1_rest_inverse;
    return fma(numbers.beta2_rest * gradient, gradient, fresh * numbers.beta2);
}

// Where hosts come together, from the mean of their moves (take_moves).
struct MeetingNumbers {
    float eps;
    float decay;
    float lrs;
};
struct Meeting {
    float parameter;
    float momentum;
};
DSL_HOST_DEVICE inline Meeting meet(float mean, float before, float variance,
                                    const MeetingNumbers& numbers) {
    const float denominator = denominator_of(variance, numbers.eps);
    const float decayed = numbers.decay * before * denominator;
    const bool trained = variance > 0;
    return {before + (trained ? mean / denominator : 0.0F),
            trained ? -mean / numbers.lrs - decayed : 0.0F};
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
