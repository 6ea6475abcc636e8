// The loops of flat_optimizer.h, compiled once per instruction set by the file that includes this
// one. They are plain loops that the compiler vectorises element by element, so every vector width
// rounds the same way. Everything here has internal linkage.
#include "kernels/cpu/block_loops.h"
#include "kernels/cpu/half_loops.h"
#include "kernels/cpu/kernel_tables.h"
#include "kernels/element/element_rules.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// The number of elements that are summed at once, into a buffer that stays in the first-level
// cache.
constexpr int64_t kBlock = 1024;
// The number of elements that an update processes at once: four cache lines of each array.
constexpr int64_t kChunk = 64;
constexpr int64_t kLineBytes = 64;

// Sets OUT to VALUE. If kAdds, adds VALUE to OUT instead, which rounds once more.
template <bool kAdds>
inline void put(float value, float& out) {
    out = kAdds ? out + value : value;
}

// Sets OUT to the scaled ordered sum of the fp32 elements [first, first + n). If kAdds, adds this
// sum to OUT instead.
template <bool kAdds>
inline void sum_block(const Sources& sources, int64_t first, int64_t n, float scale, float* out) {
    const float* a = sources.fp32[0] + first;
    if (sources.source_count == 1) {
        for (int64_t i = 0; i < n; ++i) put<kAdds>(a[i] * scale, out[i]);
        return;
    }
    const float* b = sources.fp32[1] + first;
    if (sources.source_count == 2) {
        for (int64_t i = 0; i < n; ++i) put<kAdds>((a[i] + b[i]) * scale, out[i]);
        return;
    }
    alignas(64) float total[kBlock];
    for (int64_t i = 0; i < n; ++i) total[i] = a[i] + b[i];
    for (int64_t s = 2; s < sources.source_count; ++s) {
        const float* c = sources.fp32[s] + first;
        for (int64_t i = 0; i < n; ++i) total[i] += c[i];
    }
    for (int64_t i = 0; i < n; ++i) put<kAdds>(total[i] * scale, out[i]);
}

inline void widen(NumberKind kind, const uint16_t* values, int64_t n, float* out) {
    kind == NumberKind::kBf16 ? from_bf16(values, out, n) : from_fp16(values, out, n);
}

// Sums 16-bit sources in order, in fp32, and scales the sum. REQUIRES: n <= kChunk.
inline void sum_halves(const Sources& sources, int64_t first, int64_t n, float scale,
                       float* __restrict out) {
    widen(sources.kind, sources.half[0] + first, n, out);
    alignas(64) float next[kChunk];
    for (int64_t s = 1; s < sources.source_count; ++s) {
        widen(sources.kind, sources.half[s] + first, n, next);
        for (int64_t i = 0; i < n; ++i) out[i] += next[i];
    }
    for (int64_t i = 0; i < n; ++i) out[i] *= scale;
}

inline void add_decay(const float* __restrict parameters, float decay, int64_t n,
                      float* __restrict gradient) {
    for (int64_t i = 0; i < n; ++i) gradient[i] = fma(parameters[i], decay, gradient[i]);
}

template <typename T>
inline T* moved(T* start, int64_t numel) {
    return start == nullptr ? nullptr : start + numel;
}

// Writes the 16-bit copy of n updated parameters. If WHOLE_LINES, the copy is a chunk of kChunk
// elements that starts at a cache line, and the writes bypass the caches.
inline void copy_half(const UpdateArrays& arrays, int64_t at, int64_t n, bool whole_lines) {
    const float* values = arrays.parameters + at;
    uint16_t* out = arrays.half + at;
    const bool bf16 = arrays.half_kind == NumberKind::kBf16;
#if defined(DSL_STREAM_STORE)
    if (whole_lines) {
        alignas(kLineBytes) uint16_t chunk[kChunk];
        bf16 ? to_bf16(values, chunk, kChunk) : to_fp16(values, chunk, kChunk);
        stream_lines(chunk, out, kChunk);
        return;
    }
#endif
    static_cast<void>(whole_lines);
    bf16 ? to_bf16(values, out, n) : to_fp16(values, out, n);
}

// Updates one chunk of n <= kChunk elements. The gradient is summed and scaled first; then L2
// decay, the rule and the 16-bit copy follow, all in the first-level cache.
template <bool kWrites, typename Rule>
[[gnu::always_inline]] inline void update_chunk(const UpdateArrays& arrays, int64_t at, int64_t n,
                                                const Rule& rule, bool whole_lines) {
    alignas(64) float gradient[kChunk];
    if (arrays.gradients.kind == NumberKind::kFp32) {
        sum_block<false>(arrays.gradients, at, n, arrays.gradient_scale, gradient);
    } else {
        sum_halves(arrays.gradients, at, n, arrays.gradient_scale, gradient);
    }
    if (arrays.l2_decay != 0) add_decay(arrays.decay_parameters + at, arrays.l2_decay, n, gradient);
    float* p = kWrites ? arrays.parameters + at : nullptr;
    rule.template apply<kWrites>(gradient, moved(arrays.first, at), moved(arrays.second, at),
                                 moved(arrays.third, at), p, n);
    if (kWrites && arrays.half != nullptr) copy_half(arrays, at, n, whole_lines);
}

// Returns the number of elements from `at` to the next start of a cache line of HALF.
inline int64_t to_next_line(const uint16_t* half, int64_t at) {
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(half + at));
    return (kLineBytes - address % kLineBytes) % kLineBytes / int64_t{sizeof(uint16_t)};
}

template <bool kWrites, typename Rule>
inline void update_chunks(const UpdateArrays& arrays, ElementRange range, const Rule& rule) {
    const int64_t end = range.begin + range.numel;
    int64_t at = range.begin;
    if (arrays.streams) {
        const int64_t head = to_next_line(arrays.half, at);
        const int64_t n = head < range.numel ? head : range.numel;
        update_chunk<kWrites>(arrays, at, n, rule, false);
        at += n;
    }
    for (; at + kChunk <= end; at += kChunk)
        update_chunk<kWrites>(arrays, at, kChunk, rule, arrays.streams);
    if (at < end) update_chunk<kWrites>(arrays, at, end - at, rule, false);
#if defined(DSL_STREAM_STORE)
    if (arrays.streams) stream_fence();
#endif
}

template <typename Rule>
inline void update(const UpdateArrays& arrays, ElementRange range, const Rule& rule) {
    arrays.parameters == nullptr ? update_chunks<false>(arrays, range, rule)
                                 : update_chunks<true>(arrays, range, rule);
}

void adam(const UpdateArrays& arrays, ElementRange range, const AdamConstants& constants) {
    switch (constants.form) {
        case AdamForm::kUsual:
            return update(arrays, range, Adam{constants});
        case AdamForm::kFrozen:
            return update(arrays, range, FrozenAdam{constants});
        case AdamForm::kLargest:
            return update(arrays, range, AmsgradAdam{constants});
        case AdamForm::kEpsInside:
            return update(arrays, range, EpsInsideAdam{constants});
    }
}

void adagrad(const UpdateArrays& arrays, ElementRange range, const AdagradConstants& constants) {
    update(arrays, range, Adagrad{constants});
}

void lion(const UpdateArrays& arrays, ElementRange range, const LionConstants& constants) {
    update(arrays, range, Lion{constants});
}

void sgd(const UpdateArrays& arrays, ElementRange range, const SgdConstants& constants) {
    update(arrays, range, Sgd{constants});
}

template <bool kAdds>
inline void sum_blocks(const Sources& sources, float scale, float* out, int64_t numel) {
    for (int64_t first = 0; first < numel; first += kBlock) {
        const int64_t n = numel - first < kBlock ? numel - first : kBlock;
        sum_block<kAdds>(sources, first, n, scale, out + first);
    }
}

void sum(const Sources& sources, float scale, float* out, int64_t numel) {
    sum_blocks<false>(sources, scale, out, numel);
}

void accumulate(const Sources& sources, float scale, float* into, int64_t numel) {
    sum_blocks<true>(sources, scale, into, numel);
}

void sum_half(const Sources& sources, uint16_t* out, int64_t numel) {
    alignas(64) float total[kChunk];
    for (int64_t first = 0; first < numel; first += kChunk) {
        const int64_t n = numel - first < kChunk ? numel - first : kChunk;
        sum_halves(sources, first, n, 1.0F, total);
        sources.kind == NumberKind::kBf16 ? to_bf16(total, out + first, n)
                                          : to_fp16(total, out + first, n);
    }
}

double block_squares(const float* values, int64_t numel) {
    return sum_by_lanes(numel, [&](int64_t i) {
        const double value = values[i];
        return value * value;
    });
}

constexpr FlatKernels kFlat{adam,       adagrad,  lion,          sgd,     sum,
                            accumulate, sum_half, block_squares, to_bf16, to_fp16};

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
