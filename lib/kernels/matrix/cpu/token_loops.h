// The loops of token_kernels.h, compiled like row_major_loops.h. Everything here has internal
// linkage.
#pragma once

#include "kernels/matrix/cpu/function_loops.h"
#include "kernels/matrix/cpu/lanes.h"
#include "kernels/matrix/cpu/token_kernels.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// Returns Σ f(x): sums within lanes first, then adds the lanes in sum()'s order.
template <typename F>
inline float sum_over(const float* x, int64_t width, const F& f) {
    Floats sums = fill(0);
    for (int64_t i = 0; i < width; i += kLanes) sums = sums + f(x + i, width - i);
    return sum(sums);
}

void rms_norm(const float* x, int64_t width, const Norm& norm, float* out) {
    const float squares = sum_over(x, width, [](const float* from, int64_t numel) {
        const Floats part = load_part(from, numel);
        return part * part;
    });
    const float mean = squares / static_cast<float>(width);
    const Floats factor = fill(1.0F / __builtin_sqrtf(mean + norm.epsilon));
    for (int64_t i = 0; i < width; i += kLanes) {
        Floats value = load_part(x + i, width - i) * factor;
        if (norm.weight != nullptr) {
            const Floats weight = load_part(norm.weight + i, width - i);
            value = value * (norm.one_plus ? weight + fill(1) : weight);
        }
        store_part(out + i, value, width - i);
    }
}

void layer_norm(const float* x, int64_t width, const Norm& norm, float* out) {
    const auto numbers = static_cast<float>(width);
    const float mean =
        sum_over(x, width,
                 [](const float* from, int64_t numel) { return load_part(from, numel); }) /
        numbers;
    const float squares = sum_over(x, width, [&](const float* from, int64_t numel) {
        // The lanes after the last number must not count, so they are set to the mean.
        float filled[kLanes];
        if (numel < kLanes) {
            for (int64_t i = 0; i < kLanes; ++i) filled[i] = i < numel ? from[i] : mean;
            from = filled;
        }
        const Floats part = load(from) - fill(mean);
        return part * part;
    });
    const Floats factor = fill(1.0F / __builtin_sqrtf(squares / numbers + norm.epsilon));
    for (int64_t i = 0; i < width; i += kLanes) {
        Floats value = (load_part(x + i, width - i) - fill(mean)) * factor;
        if (norm.weight != nullptr) value = value * load_part(norm.weight + i, width - i);
        if (norm.bias != nullptr) value = value + load_part(norm.bias + i, width - i);
        store_part(out + i, value, width - i);
    }
}

void rotate_halves(float* heads, const Rotation& rotation) {
    for (int64_t head = 0; head < rotation.heads; ++head, heads += rotation.width) {
        float* const other = heads + rotation.pairs;
        for (int64_t i = 0; i < rotation.pairs; i += kLanes) {
            const int64_t numel = rotation.pairs - i;
            const Floats cos = load_part(rotation.cos + i, numel);
            const Floats sin = load_part(rotation.sin + i, numel);
            const Floats a = load_part(heads + i, numel), b = load_part(other + i, numel);
            store_part(heads + i, a * cos - b * sin, numel);
            store_part(other + i, b * cos + a * sin, numel);
        }
    }
}

void rotate_pairs(float* heads, const Rotation& rotation) {
    for (int64_t head = 0; head < rotation.heads; ++head, heads += rotation.width)
        for (int64_t i = 0; i < rotation.pairs; ++i) {
            const float a = heads[2 * i], b = heads[2 * i + 1];
            heads[2 * i] = a * rotation.cos[i] - b * rotation.sin[i];
            heads[2 * i + 1] = b * rotation.cos[i] + a * rotation.sin[i];
        }
}

inline Floats sigmoid_of(Floats x) {
    return fill(1) / (fill(1) + exponential(fill(0) - x));
}

template <Gate kAct>
inline Floats activated(Floats x) {
    const Floats positive = larger(fill(0), x);  // a NaN stays one
    switch (kAct) {
        case Gate::kSilu:
            return x * sigmoid_of(x);
        case Gate::kGelu:
            return x * fill(0.5F) * one_plus_erf(x * fill(0.70710678118654752F));
        case Gate::kGeluTanh: {
            // (1 + tanh(u)) / 2 is the sigmoid of 2u. The sigmoid does not subtract nearly equal
            // numbers.
            constexpr float kFactor = 2.0F * 0.79788456080286536F;
            const Floats inner = fma(x * x * x, fill(0.044715F), x);
            return x * sigmoid_of(inner * fill(kFactor));
        }
        case Gate::kQuickGelu:
            return x * sigmoid_of(x * fill(1.702F));
        case Gate::kRelu:
            return positive;
        case Gate::kReluSquared:
            break;
    }
    return positive * positive;
}

template <Gate kAct>
void gate_row(const float* gate, const float* up, float* out, int64_t width) {
    for (int64_t i = 0; i < width; i += kLanes) {
        const Floats value = activated<kAct>(load_part(gate + i, width - i));
        const bool gated = up != nullptr;
        store_part(out + i, gated ? value * load_part(up + i, width - i) : value, width - i);
    }
}

// Returns scores padded with -infinity, for which exp gives 0.
inline Floats scores_at(const float* x, int64_t numel) {
    if (numel >= kLanes) return load(x);
    float all[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) all[i] = i < numel ? x[i] : -kInfinity;
    return load(all);
}

void softmax_row(const float* x, int64_t width, float* out) {
    Floats most = fill(-kInfinity);
    for (int64_t i = 0; i < width; i += kLanes) most = larger(scores_at(x + i, width - i), most);
    const Floats top = fill(largest(most));
    Floats sums = fill(0);
    for (int64_t i = 0; i < width; i += kLanes) {
        const Floats weight = exponential(scores_at(x + i, width - i) - top);
        sums = sums + weight;
        store_part(out + i, weight, width - i);
    }
    const Floats factor = fill(1.0F / sum(sums));
    for (int64_t i = 0; i < width; i += kLanes)
        store_part(out + i, load_part(out + i, width - i) * factor, width - i);
}

void add_rows(const float* a, const float* b, float* out, int64_t width) {
    for (int64_t i = 0; i < width; i += kLanes)
        store_part(out + i, load_part(a + i, width - i) + load_part(b + i, width - i), width - i);
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
