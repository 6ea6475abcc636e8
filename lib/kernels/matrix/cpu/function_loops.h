// exp, tanh and erfc of 16 numbers, after Cephes (Moshier 1989), compiled like row_major_loops.h.
// Everything here has internal linkage.
#pragma once

#include "base/half_bits.h"
#include "kernels/matrix/cpu/lanes.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

constexpr float kInfinity = __builtin_inff();

template <int kCount>
inline Floats polynomial(Floats x, const float (&coefficients)[kCount]) {
    Floats sum = fill(coefficients[0]);
    for (int i = 1; i < kCount; ++i) sum = fma(sum, x, fill(coefficients[i]));
    return sum;
}

// Returns exp(x): 0 below -86.6, infinity above 88.72. A NaN stays a NaN, because larger() and
// smaller() return their second argument if it is a NaN.
inline Floats exponential(Floats x) {
    constexpr float kLeast = -86.6F, kMost = 88.722839F;
    const Floats bounded = smaller(fill(kMost), larger(fill(kLeast), x));
    const Floats shifted = fma(bounded, fill(1.44269504F), fill(kWholeShift));
    const Floats power = shifted - fill(kWholeShift);
    const Floats rest = fma(power, fill(2.12194440e-4F), fma(power, fill(-0.693359375F), bounded));
    constexpr float kTerms[] = {1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F,
                                4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
    const Floats tail = fma(polynomial(rest, kTerms), rest * rest, rest);
    // 2^128 does not fit in a float, so the last factor of 2 is applied separately.
    const Floats half = times_power_of_2(tail + fill(1), power - fill(1));
    const Floats result = where_less(x, fill(kLeast), fill(0), half + half);
    return where_less(fill(kMost), x, fill(kInfinity), result);
}

inline Floats hyperbolic_tangent(Floats x) {
    const Floats size = magnitude(x), one = fill(1), two = fill(2), square = x * x;
    const Floats far = one - two / (exponential(size + size) + one);
    constexpr float kTerms[] = {-5.70498872745e-3F, 2.06390887954e-2F, -5.37397155531e-2F,
                                1.33314422036e-1F, -3.33332819422e-1F};
    const Floats near = fma(polynomial(square, kTerms) * square, x, x);
    const Floats with_sign = where_less(x, fill(0), fill(0) - far, far);
    return where_less(size, fill(0.625F), near, with_sign);
}

// Returns 1 - erf(x) for x >= 1, without computing the difference, which would lose digits.
inline Floats far_erfc(Floats x) {
    constexpr float kMiddle[] = {
        2.326819970068386e-2F,  -1.387039388740657e-1F, 3.687424674597105e-1F,
        -5.824733027278666e-1F, 6.210004621745983e-1F,  -4.944515323274145e-1F,
        3.404879937665872e-1F,  -2.741127028184656e-1F, 5.638259427386472e-1F};
    constexpr float kFar[] = {-1.047766399936249e+1F, 1.297719955372516e+1F,
                              -7.495518717768503e+0F, 2.921019019210786e+0F,
                              -1.015265279202700e+0F, 4.218463358204948e-1F,
                              -2.820767439740514e-1F, 5.641895067754075e-1F};
    const Floats reciprocal = fill(1) / x, square = reciprocal * reciprocal;
    const Floats tail =
        where_less(x, fill(2), polynomial(square, kMiddle), polynomial(square, kFar));
    return exponential(fill(0) - x * x) * reciprocal * tail;
}

inline Floats near_erf(Floats x) {
    constexpr float kTerms[] = {7.853861353153693e-5F, -8.010193625184903e-4F,
                                5.188327685732524e-3F, -2.685381193529856e-2F,
                                1.128358514861418e-1F, -3.761262582423300e-1F,
                                1.128379165726710e+0F};
    return polynomial(x * x, kTerms) * x;
}

// Returns 1 + erf(x).
inline Floats one_plus_erf(Floats x) {
    const Floats size = magnitude(x), one = fill(1);
    const Floats erfc = far_erfc(larger(fill(1), size));
    const Floats far = where_less(x, fill(0), erfc, fill(2) - erfc);
    return where_less(size, one, one + near_erf(x), far);
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
