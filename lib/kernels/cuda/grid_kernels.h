// The kernels of flat_optimizer.h for a grid of threads: the code of one thread, written as
// functions that compile for GPUs and for processors. cuda_kernels.cu runs it on a GPU; tests run
// it in a loop over the grid (host_grid.h), so arithmetic and indexing are tested without a GPU.
// The bits are equal to the scalar kernels' bits. Everything here has internal linkage, as in
// element_rules.h.
//
// Bytes moved per element by an Adam update with a 16-bit copy: 4 (gradient) + 3 x 8 (master copy
// and two states) + 2 (copy) = 30; in fp32, 28. A thread processes four elements at once, 16 bytes
// of each array.
#pragma once

#include <cstdint>

#include "base/half_bits.h"
#include "kernels/cuda/grid_arguments.h"
#include "kernels/element/element_rules.h"
#include "kernels/element/update_arrays.h"

// NOLINTBEGIN(misc-definitions-in-headers): as in element_rules.h.
namespace dslaunch::kernels {
namespace {

inline constexpr int kThreads = 256;         // threads of a block
inline constexpr int kVector = 4;            // elements that a thread processes at once
inline constexpr int64_t kBlocksMax = 4096;  // a larger array is processed in several rounds
inline constexpr int kSourcesMax = 8;        // sources of a sum
inline constexpr int kNormLanes = 16;        // threads that sum the squares of one array
inline constexpr int kNormArrays = kThreads / kNormLanes;  // arrays that a block sums

// The position of a thread in its grid.
struct GridPlace {
    int64_t thread = 0;   // its index among all threads of the grid
    int64_t threads = 0;  // the number of threads of the grid
};

// Returns the number of blocks that process NUMEL elements.
DSL_HOST_DEVICE inline int64_t blocks_over(int64_t numel) {
    const int64_t per_block = int64_t{kThreads} * kVector;
    const int64_t blocks = (numel + per_block - 1) / per_block;
    return blocks < kBlocksMax ? blocks : kBlocksMax;
}

// Arrays that are summed in order.
struct GridSources {
    const float* data[kSourcesMax];
    int count;
};

// The parts of UpdateArrays that a grid needs, as a struct that is passed by value.
struct GridUpdate {
    GridSources gradients;
    float gradient_scale;
    float l2_decay;
    float* parameters;
    float* first;
    float* second;
    float* third;
    uint16_t* half;
    bool half_is_bf16;
    int64_t begin;
    int64_t numel;
};

// Returns SOURCES as a struct. REQUIRES: at most kSourcesMax arrays, all fp32.
inline GridSources grid_sources(const Sources& sources) {
    GridSources list{};
    list.count = static_cast<int>(sources.source_count);
    for (int s = 0; s < list.count && s < kSourcesMax; ++s) list.data[s] = sources.fp32[s];
    return list;
}

// Returns the arguments for an update of RANGE. REQUIRES: at most kSourcesMax gradients, all fp32.
inline GridUpdate grid_arguments(const UpdateArrays& arrays, ElementRange range) {
    return {grid_sources(arrays.gradients),
            arrays.gradient_scale,
            arrays.l2_decay,
            arrays.parameters,
            arrays.first,
            arrays.second,
            arrays.third,
            arrays.half,
            arrays.half_kind == NumberKind::kBf16,
            range.begin,
            range.numel};
}

// kVector elements. If they are aligned in memory, they are read or written in one access. A rank's
// share may begin at any element (`dslaunch.shard: row`); then the elements are accessed one by
// one.
struct alignas(16) Four {
    float v[kVector];
};
struct alignas(8) FourHalves {
    uint16_t v[kVector];
};

template <typename Vector>
DSL_HOST_DEVICE inline bool is_vector(const void* at, int n) {
    return n == kVector && reinterpret_cast<uintptr_t>(at) % alignof(Vector) == 0;
}

DSL_HOST_DEVICE inline Four load(const float* from, int n) {
    if (is_vector<Four>(from, n)) return *reinterpret_cast<const Four*>(from);
    Four four;
    for (int i = 0; i < kVector; ++i) four.v[i] = i < n ? from[i] : 0.0F;
    return four;
}

DSL_HOST_DEVICE inline void store(const Four& four, float* into, int n) {
    if (is_vector<Four>(into, n)) {
        *reinterpret_cast<Four*>(into) = four;
        return;
    }
    for (int i = 0; i < n; ++i) into[i] = four.v[i];
}

DSL_HOST_DEVICE inline void store_half(const Four& four, uint16_t* into, int n, bool bf16) {
    FourHalves halves;
    for (int i = 0; i < kVector; ++i) halves.v[i] = bf16 ? bf16_of(four.v[i]) : fp16_of(four.v[i]);
    if (is_vector<FourHalves>(into, n)) {
        *reinterpret_cast<FourHalves*>(into) = halves;
        return;
    }
    for (int i = 0; i < n; ++i) into[i] = halves.v[i];
}

// Returns the scaled ordered sum of elements [AT, AT + N) of SOURCES.
DSL_HOST_DEVICE inline Four sum_of(const GridSources& sources, int64_t at, int n, float scale) {
    Four sum = load(sources.data[0] + at, n);
    for (int s = 1; s < sources.count; ++s) {
        const Four next = load(sources.data[s] + at, n);
        for (int i = 0; i < kVector; ++i) sum.v[i] += next.v[i];
    }
    for (int i = 0; i < kVector; ++i) sum.v[i] *= scale;
    return sum;
}

// Calls use(at, n) for the vectors of [BEGIN, BEGIN + NUMEL) that the thread at PLACE processes.
template <typename Use>
DSL_HOST_DEVICE inline void for_vectors(int64_t begin, int64_t numel, const GridPlace& place,
                                        const Use& use) {
    for (int64_t at = place.thread * kVector; at < numel; at += place.threads * kVector) {
        const int64_t left = numel - at;
        use(begin + at, left < kVector ? static_cast<int>(left) : kVector);
    }
}

template <typename Rule>
DSL_HOST_DEVICE inline void grid_update(const GridUpdate& update, const Rule& rule,
                                        const GridPlace& place) {
    for_vectors(update.begin, update.numel, place, [&](int64_t at, int n) {
        Four gradient = sum_of(update.gradients, at, n, update.gradient_scale);
        Four parameters = load(update.parameters + at, n);
        if (update.l2_decay != 0)
            for (int i = 0; i < kVector; ++i)
                gradient.v[i] = fma(parameters.v[i], update.l2_decay, gradient.v[i]);
        Four first{}, second{}, third{};
        if (update.first != nullptr) first = load(update.first + at, n);
        if (update.second != nullptr) second = load(update.second + at, n);
        if (update.third != nullptr) third = load(update.third + at, n);
        rule.template apply<true>(gradient.v, update.first != nullptr ? first.v : nullptr,
                                  update.second != nullptr ? second.v : nullptr,
                                  update.third != nullptr ? third.v : nullptr, parameters.v,
                                  kVector);
        if (update.first != nullptr) store(first, update.first + at, n);
        if (update.second != nullptr) store(second, update.second + at, n);
        if (update.third != nullptr) store(third, update.third + at, n);
        store(parameters, update.parameters + at, n);
        if (update.half != nullptr)
            store_half(parameters, update.half + at, n, update.half_is_bf16);
    });
}

// Sets OUT to the ordered sum. If ADDS is true, adds the sum to OUT instead, which rounds once
// more.
DSL_HOST_DEVICE inline void grid_sum(const GridSources& sources, float scale, bool adds, float* out,
                                     int64_t numel, const GridPlace& place) {
    for_vectors(0, numel, place, [&](int64_t at, int n) {
        Four sum = sum_of(sources, at, n, scale);
        if (adds) {
            const Four before = load(out + at, n);
            for (int i = 0; i < kVector; ++i) sum.v[i] = before.v[i] + sum.v[i];
        }
        store(sum, out + at, n);
    });
}

DSL_HOST_DEVICE inline void grid_to_half(const float* values, uint16_t* out, bool bf16,
                                         int64_t numel, const GridPlace& place) {
    for_vectors(0, numel, place,
                [&](int64_t at, int n) { store_half(load(values + at, n), out + at, n, bf16); });
}

DSL_HOST_DEVICE inline void grid_fill(float* into, float value, int64_t numel,
                                      const GridPlace& place) {
    const Four four{{value, value, value, value}};
    for_vectors(0, numel, place, [&](int64_t at, int n) { store(four, into + at, n); });
}

// Returns the sum of squares of an array's elements LANE, LANE + kNormLanes, … in fp64. add_lanes
// adds the lanes' sums in the scalar kernel's order.
DSL_HOST_DEVICE inline double lane_squares(const GridValues& values, int lane) {
    double sum = 0;
    for (int64_t i = lane; i < values.numel; i += kNormLanes) {
        const double value = values.data[i];
        sum += value * value;
    }
    return sum;
}

DSL_HOST_DEVICE inline double add_lanes(const double* lanes) {
    double sum = 0;
    for (int lane = 0; lane < kNormLanes; ++lane) sum += lanes[lane];
    return sum;
}

// Sets the flag of ARRAY to 1 if one of its elements is not finite.
DSL_HOST_DEVICE inline void grid_flag_nonfinite(const GridFlags& flags, int array,
                                                const GridPlace& place) {
    const GridValues& values = flags.arrays[array];
    for_vectors(0, values.numel, place, [&](int64_t at, int n) {
        const Four four = load(values.data + at, n);
        bool bad = false;
        for (int i = 0; i < kVector; ++i) {
            const auto bits = __builtin_bit_cast(uint32_t, four.v[i]);
            bad = bad || (bits & 0x7F800000U) == 0x7F800000U;
        }
        if (bad) flags.flags[array] = 1;
    });
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
