// The loops of matrix/attend.h, compiled like row_major_loops.h. Each block of kAttendBlock
// positions of a cache is read once for all queries of a part. Everything here has internal
// linkage.
#pragma once

#include "kernels/matrix/cpu/function_loops.h"
#include "kernels/matrix/cpu/token_loops.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// Pointers to the keys and values of a block's positions.
template <typename T>
struct AttendBlock {
    const typename T::Type* keys[kAttendBlock];
    const typename T::Type* values[kAttendBlock];
    int64_t first, numel;  // positions
};

// Sets BLOCK to the positions from FIRST on. Uses the part's first position in place of all
// positions before it.
template <typename T>
inline void find_block(const AttendPart& part, int64_t first, AttendBlock<T>& block) {
    block.first = first;
    block.numel = part.last - first < kAttendBlock ? part.last - first : kAttendBlock;
    for (int64_t i = 0; i < block.numel; ++i) {
        const int64_t position = first + i < part.first ? part.first : first + i;
        const int64_t page = position / part.page_positions;
        const int64_t offset =
            position % part.page_positions * part.position_stride + part.head_offset;
        block.keys[i] = static_cast<const typename T::Type*>(part.key_pages[page]) + offset;
        block.values[i] = static_cast<const typename T::Type*>(part.value_pages[page]) + offset;
    }
}

inline bool sees(const AttendQuery& query, int64_t first, int64_t numel) {
    return query.begin < first + numel && first < query.length;
}

// Computes q · k for kHeads queries and four keys.
template <typename T, int kHeads>
inline void score_tile(const AttendQuery* const* queries, const typename T::Type* const* keys,
                       int64_t width, float (*scores)[kAttendBlock]) {
    Floats sums[kHeads][4];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) sums[h][p] = fill(0);
    const auto add_products = [&](int64_t i, int64_t numel) __attribute__((always_inline)) {
        Floats k[4];
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) k[p] = load_as<T>(keys[p] + i, numel);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
            const Floats q = load_part(queries[h]->q + i, numel);
#pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) sums[h][p] = fma(q, k[p], sums[h][p]);
        }
    };
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) add_products(i, kLanes);
    if (i < width) add_products(i, width - i);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
        sum_4(sums[h][0], sums[h][1], sums[h][2], sums[h][3], scores[h]);
}

constexpr int kScoreHeads = kByteRows < 8 ? 1 : 4;

template <typename T, int kHeads>
inline void score_block(const AttendQuery* const* queries, const AttendBlock<T>& block,
                        int64_t width, float (*scores)[kAttendBlock]) {
    for (int64_t p = 0; p < block.numel; p += 4) {
        const typename T::Type* keys[4];
        for (int64_t i = 0; i < 4; ++i)  // the last key replaces missing ones
            keys[i] = block.keys[p + i < block.numel ? p + i : block.numel - 1];
        float tile[kHeads][kAttendBlock];
        score_tile<T, kHeads>(queries, keys, width, tile);
        for (int h = 0; h < kHeads; ++h)
            for (int64_t i = 0; i < 4; ++i) scores[h][p + i] = tile[h][i];
    }
}

// Returns softcap · tanh(x / softcap), or X if there is no cap.
inline Floats capped(Floats x, float softcap) {
    if (softcap == 0) return x;
    return fill(softcap) * hyperbolic_tangent(x / fill(softcap));
}

// Turns the scores of a block into softmax weights. Returns the factor for the query's earlier
// sums.
inline float weigh_block(const AttendPart& part, const AttendQuery& query, int64_t first,
                         float* scores) {
    for (int64_t i = 0; i < kAttendBlock; i += kLanes)
        store(scores + i, capped(load(scores + i) * fill(part.scale), part.softcap));
    for (int64_t i = 0; i < kAttendBlock; ++i) {
        const int64_t position = first + i;
        const bool seen =
            position >= query.begin && position < query.length && position < part.last;
        if (!seen) scores[i] = -kInfinity;
    }
    Floats most = load(scores);
    for (int64_t i = kLanes; i < kAttendBlock; i += kLanes) most = larger(load(scores + i), most);
    float* const state = query.gathered + part.width;
    const float block_top = largest(most);
    const float top = state[0] > block_top ? state[0] : block_top;
    Floats sums = fill(0);
    for (int64_t i = 0; i < kAttendBlock; i += kLanes) {
        const Floats weight = exponential(load(scores + i) - fill(top));
        store(scores + i, weight);
        sums = sums + weight;
    }
    float factors[kLanes];
    store(factors, exponential(fill(state[0] - top)));
    state[0] = top;
    state[1] = state[1] * factors[0] + sum(sums);
    return factors[0];
}

// Sets gathered = gathered · factor + Σ weight · value, for kHeads queries.
template <typename T, int kHeads>
inline void add_values(const AttendQuery* const* queries, const AttendBlock<T>& block,
                       int64_t width, const float* factors, const float (*weights)[kAttendBlock]) {
    for (int64_t i = 0; i < width; i += 2 * kLanes) {
        const int64_t numel = width - i, next = numel > kLanes ? kLanes : 0;
        Floats sums[kHeads][2];
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
            const float* const from = queries[h]->gathered + i;
            sums[h][0] = load_part(from, numel) * fill(factors[h]);
            sums[h][1] = load_part(from + next, numel - next) * fill(factors[h]);
        }
        for (int64_t p = 0; p < block.numel; ++p) {
            const Floats low = load_as<T>(block.values[p] + i, numel);
            const Floats high = load_as<T>(block.values[p] + i + next, numel - next);
#pragma GCC unroll 4
            for (int h = 0; h < kHeads; ++h) {
                const Floats weight = fill(weights[h][p]);
                sums[h][0] = fma(low, weight, sums[h][0]);
                sums[h][1] = fma(high, weight, sums[h][1]);
            }
        }
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
            float* const to = queries[h]->gathered + i;
            store_part(to, sums[h][0], numel);
            if (next > 0) store_part(to + next, sums[h][1], numel - next);
        }
    }
}

template <typename T, int kHeads>
inline void attend_queries(const AttendPart& part, const AttendQuery* const* queries,
                           const AttendBlock<T>& block) {
    float scores[kHeads][kAttendBlock] = {}, factors[kHeads];
    score_block<T, kHeads>(queries, block, part.width, scores);
    for (int h = 0; h < kHeads; ++h)
        factors[h] = weigh_block(part, *queries[h], block.first, scores[h]);
    add_values<T, kHeads>(queries, block, part.width, factors, scores);
}

template <typename T>
void attend_part(const AttendPart& part) {
    const int64_t begin = part.first / kAttendBlock * kAttendBlock;
    for (int64_t first = begin; first < part.last; first += kAttendBlock) {
        AttendBlock<T> block;
        find_block(part, first, block);
        const AttendQuery* waiting[kScoreHeads];
        int count = 0;
        for (int64_t i = 0; i < part.query_count; ++i) {
            if (!sees(part.queries[i], first, block.numel)) continue;
            waiting[count++] = part.queries + i;
            if (count < kScoreHeads) continue;
            attend_queries<T, kScoreHeads>(part, waiting, block);
            count = 0;
        }
        for (int i = 0; i < count; ++i) attend_queries<T, 1>(part, waiting + i, block);
    }
}

void merge_parts(const float* gathered, int64_t stride, int64_t count, int64_t width, float* out) {
    float top = -kInfinity;
    for (int64_t c = 0; c < count; ++c) {
        const float one = gathered[c * stride + width];
        top = one > top ? one : top;
    }
    float weights = 0;
    for (int64_t i = 0; i < width; ++i) out[i] = 0;
    for (int64_t c = 0; c < count; ++c) {
        const float* const part = gathered + c * stride;
        float factors[kLanes];
        store(factors, exponential(fill(part[width] - top)));
        weights = __builtin_fmaf(part[width + 1], factors[0], weights);
        for (int64_t i = 0; i < width; i += kLanes)
            store_part(out + i,
                       fma(load_part(part + i, width - i), fill(factors[0]),
                           load_part(out + i, width - i)),
                       width - i);
    }
    const Floats factor = fill(1.0F / weights);
    for (int64_t i = 0; i < width; i += kLanes)
        store_part(out + i, load_part(out + i, width - i) * factor, width - i);
}

constexpr TokenKernels kToken{
    rms_norm,
    layer_norm,
    rotate_halves,
    rotate_pairs,
    {gate_row<Gate::kSilu>, gate_row<Gate::kGelu>, gate_row<Gate::kGeluTanh>,
     gate_row<Gate::kQuickGelu>, gate_row<Gate::kRelu>, gate_row<Gate::kReluSquared>},
    softmax_row,
    add_rows,
    {attend_part<F32>, attend_part<Bf16>, attend_part<Fp16>},
    merge_parts};

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
