// Rounding of weights to fewer bits, compiled like row_major_loops.h. Everything here has internal
// linkage.
#pragma once

#include "base/half_bits.h"
#include "kernels/matrix/cpu/activation_loops.h"
#include "kernels/matrix/cpu/lanes.h"
#include "kernels/matrix/cpu/matrix_kernels.h"
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// One group of a panel, [group][16 outputs], with zeros where the matrix has no weight.
struct PanelGroup {
    float values[kGroupMax * kLanes];

    [[nodiscard]] Floats at(int64_t k) const { return load(values + k * kLanes); }
};

inline void read_group(const PanelSource& source, int64_t g, PanelGroup& to) {
    const int64_t first = g * source.group;
    for (int64_t lane = 0; lane < kLanes; ++lane)
        for (int64_t k = 0; k < source.group; ++k) {
            const bool has = source.rows[lane] != nullptr && first + k < source.in;
            to.values[k * kLanes + lane] = has ? source.rows[lane][first + k] : 0.0F;
        }
}

// Returns the largest magnitude of each output, or NaN if one of the output's numbers is not
// finite. largest_bits() does the same for one row; this function does it for 16 outputs at once.
inline Floats largest_magnitudes(const PanelGroup& group, int64_t numel) {
    Floats largest = fill(0), poison = fill(0);
    for (int64_t k = 0; k < numel; ++k) {
        largest = larger(magnitude(group.at(k)), largest);
        poison = fma(group.at(k), fill(0), poison);
    }
    return largest + poison;
}

void to_int8(const PanelSource& source, const PanelTarget& to) {
    PanelGroup group;
    uint8_t* codes = to.codes;
    for (int64_t g = 0; g < source.groups; ++g) {
        read_group(source, g, group);
        float largest[kLanes], divisors[kLanes];
        store(largest, largest_magnitudes(group, source.group));
        uint16_t* const scales = static_cast<uint16_t*>(to.scales) + g * kLanes;
        for (int i = 0; i < kLanes; ++i) {
            // Rounded up, so that no code is above 127. The bytes of a matrix must not depend on
            // the processor, so each NaN must become the same bits.
            scales[i] = bf16_above(largest[i] / 127.0F);
            const float scale = fp32_of_bf16(scales[i]);
            divisors[i] = scale > 0 ? scale : __builtin_inff();  // otherwise all codes are 0
        }
        for (int64_t k = 0; k < source.group; ++k) {
            float wholes[kLanes];
            // A number that is not finite gets a code within these bounds; the code does not
            // matter, because the scale is NaN.
            const Floats quotient = group.at(k) / load(divisors);
            store(wholes, nearest(larger(smaller(quotient, fill(127)), fill(-127))));
            uint8_t* const there = codes + k / 4 * 64 + k % 4;
            for (int i = 0; i < kLanes; ++i)
                there[4 * i] = static_cast<uint8_t>(static_cast<int32_t>(wholes[i]) + 128);
        }
        codes += source.group * kLanes;
    }
}

// Writes the codes 0..15 of 16 outputs for input K of a group.
inline void keep_nibbles(uint8_t* group_codes, int64_t k, Floats wholes) {
    float codes[kLanes];
    store(codes, wholes);
    uint8_t* const there = group_codes + k / 8 * 64 + k % 4;
    const int shift = k % 8 < 4 ? 0 : 4;
    for (int i = 0; i < kLanes; ++i) {
        const auto code = static_cast<uint32_t>(static_cast<int32_t>(codes[i]));
        const uint32_t other = shift == 0 ? 0U : there[4 * i];
        there[4 * i] = static_cast<uint8_t>(other | code << shift);
    }
}

// The numbers that codes stand for: x is about scale · code + low, with low <= 0.
struct CodeGrid {
    Floats scale, low;
};

// Gives large weights more influence on the choice of a grid, as llama.cpp's k-quants do. A weight
// becomes large in training because the loss depends on it, so its error matters more.
inline void weigh(const PanelGroup& group, int64_t numel, PanelGroup& weights) {
    Floats squares = fill(0);
    for (int64_t k = 0; k < numel; ++k) squares = fma(group.at(k), group.at(k), squares);
    float roots[kLanes];
    store(roots, squares);
    for (float& root : roots) root = __builtin_sqrtf(root / static_cast<float>(numel));
    for (int64_t k = 0; k < numel; ++k)
        store(weights.values + k * kLanes, load(roots) + magnitude(group.at(k)));
}

// Weighted sums of the numbers x and of their codes l.
struct GridSums {
    Floats w, wx, wxx, wl, wll, wxl;
};

inline Floats code_of(Floats x, Floats low, Floats reciprocal) {
    return smaller(larger(nearest((x - low) * reciprocal), fill(0)), fill(15));
}

inline GridSums sums_of(const PanelGroup& group, const PanelGroup& weights, int64_t numel,
                        Floats low, Floats reciprocal) {
    const Floats zero = fill(0);
    GridSums s{zero, zero, zero, zero, zero, zero};
    for (int64_t k = 0; k < numel; ++k) {
        const Floats x = group.at(k), w = weights.at(k), l = code_of(x, low, reciprocal);
        const Floats wx = w * x, wl = w * l;
        s.w = s.w + w;
        s.wx = s.wx + wx;
        s.wxx = fma(wx, x, s.wxx);
        s.wl = s.wl + wl;
        s.wll = fma(wl, l, s.wll);
        s.wxl = fma(wx, l, s.wxl);
    }
    return s;
}

// Returns the grid with the least weighted squared error for the codes in SUMS, with low <= 0.
inline CodeGrid fitted(const GridSums& s) {
    const Floats zero = fill(0), tiny = fill(1e-38F);
    const Floats determinant = larger(s.w * s.wll - s.wl * s.wl, tiny);
    const Floats scale = (s.w * s.wxl - s.wx * s.wl) / determinant;
    const Floats low = (s.wll * s.wx - s.wl * s.wxl) / determinant;
    return {where_less(zero, low, s.wxl / larger(s.wll, tiny), scale), smaller(low, zero)};
}

inline Floats error_of(const GridSums& s, CodeGrid grid) {
    const Floats two = fill(2);
    const Floats squares = grid.scale * grid.scale * s.wll + grid.low * grid.low * s.w + s.wxx;
    const Floats cross = grid.scale * grid.low * s.wl - grid.scale * s.wxl - grid.low * s.wx;
    return fma(two, cross, squares);
}

// Tries grids that are a little finer or coarser than the grid that spans the numbers. Fits each
// grid to its codes (make_qkx2_quants of llama.cpp), and returns the grid with the least error.
inline CodeGrid best_grid(const PanelGroup& group, const PanelGroup& weights, int64_t numel) {
    const Floats zero = fill(0);
    Floats low = zero, high = group.at(0);
    for (int64_t k = 0; k < numel; ++k) {
        low = smaller(group.at(k), low);
        high = larger(group.at(k), high);
    }
    const Floats span = larger(high - low, fill(1e-38F));
    CodeGrid best{(high - low) / fill(15), low};
    Floats least = error_of(sums_of(group, weights, numel, low, fill(15) / span), best);
    constexpr int kSteps = 20;
    for (int step = 0; step <= kSteps; ++step) {
        const float levels = 14.0F + 0.1F * static_cast<float>(step);
        const GridSums sums = sums_of(group, weights, numel, low, fill(levels) / span);
        const CodeGrid grid = fitted(sums);
        const Floats error = error_of(sums, grid);
        const Floats scale = where_less(error, least, grid.scale, best.scale);
        // Codes of a fitted grid rise with the numbers, so a valid scale is positive.
        const auto better = [&](Floats yes, Floats no) {
            return where_less(zero, scale, where_less(error, least, yes, no), no);
        };
        best = {better(grid.scale, best.scale), better(grid.low, best.low)};
        least = better(error, least);
    }
    return best;
}

// Writes an 8-bit code for the scale (or the minimum) of each group to CODES; the codes of two
// successive groups are 32 bytes apart. Writes the factor that all codes of an output share to
// FACTORS.
inline void keep_factors(const float* values, int64_t groups, uint8_t* codes, float* factors) {
    for (int i = 0; i < kLanes; ++i) {
        float largest = 0;
        for (int64_t g = 0; g < groups; ++g) {
            const float value = values[g * 2 * kLanes + i];
            largest = value > largest || value != value ? value : largest;
        }
        factors[i] = largest / 255.0F;
        for (int64_t g = 0; g < groups; ++g) {
            // Ties round up, unlike in nearest_whole(): saved matrices have these codes.
            const float share = values[g * 2 * kLanes + i] / factors[i] + 0.5F;
            codes[g * 2 * kLanes + i] =
                static_cast<uint8_t>(factors[i] > 0 ? (share < 255.0F ? share : 255.0F) : 0.0F);
        }
    }
}

void to_int4(const PanelSource& source, const PanelTarget& to) {
    PanelGroup group, weights;
    for (int64_t g = 0; g < source.groups; ++g) {
        read_group(source, g, group);
        weigh(group, source.group, weights);
        const CodeGrid grid = best_grid(group, weights, source.group);
        const Floats poison = largest_magnitudes(group, source.group) * fill(0);
        store(to.scratch + g * 2 * kLanes, grid.scale + poison);
        store(to.scratch + g * 2 * kLanes + kLanes, (fill(0) - grid.low) + poison);
    }
    auto* const scales = static_cast<uint8_t*>(to.scales);
    keep_factors(to.scratch, source.groups, scales, to.factors);
    keep_factors(to.scratch + kLanes, source.groups, scales + kLanes, to.factors + kLanes);
    uint8_t* codes = to.codes;
    for (int64_t g = 0; g < source.groups; ++g, codes += source.group * kLanes / 2) {
        read_group(source, g, group);
        const uint8_t* const there = scales + g * 2 * kLanes;
        const Floats scale = load(to.factors) * load_u8(there);
        const Floats low = fill(0) - load(to.factors + kLanes) * load_u8(there + kLanes);
        const Floats reciprocal = where_less(fill(0), scale, fill(1) / scale, fill(0));
        for (int64_t k = 0; k < source.group; ++k)
            keep_nibbles(codes, k, code_of(group.at(k), low, reciprocal));
    }
}

// The number in the NF4 table that is nearest to x, and its code.
struct Nf4 {
    Floats number, code;
};

inline Nf4 nearest_nf4(Floats x) {
    Nf4 nearest{fill(kNf4Numbers[0]), fill(0)};
    for (int i = 0; i < 15; ++i) {
        const Floats border = fill((kNf4Numbers[i] + kNf4Numbers[i + 1]) * 0.5F);
        nearest.number = where_less(border, x, fill(kNf4Numbers[i + 1]), nearest.number);
        nearest.code = where_less(border, x, fill(static_cast<float>(i + 1)), nearest.code);
    }
    return nearest;
}

// Returns the scale with the least weighted squared error, for numbers of magnitude at most 1. Each
// scale that is tried maps about the largest magnitude to the first or the last number of the
// table. Both ends are tried, because the table has more numbers above 0 than below.
inline Floats best_nf4_scale(const PanelGroup& group, const PanelGroup& weights, int64_t numel) {
    constexpr float kEnds[] = {1.0F,  1.05F,  1.1F,  0.95F,  0.9F,  0.85F,  0.8F,  0.75F,
                               -1.0F, -1.05F, -1.1F, -0.95F, -0.9F, -0.85F, -0.8F, -0.75F};
    const Floats zero = fill(0), tiny = fill(1e-38F);
    Floats best = fill(1), most = zero;
    for (const float end : kEnds) {
        Floats wxq = zero, wqq = zero;
        for (int64_t k = 0; k < numel; ++k) {
            const Floats q = nearest_nf4(group.at(k) * fill(1.0F / end)).number;
            const Floats wq = weights.at(k) * q;
            wxq = fma(wq, group.at(k), wxq);
            wqq = fma(wq, q, wqq);
        }
        // The part of the weighted squares of x that `scale * q` accounts for; the rest is the
        // error.
        const Floats scale = wxq / larger(wqq, tiny), explained = wxq * scale;
        best = where_less(most, explained, scale, best);
        most = where_less(most, explained, explained, most);
    }
    return best;
}

void to_nf4(const PanelSource& source, const PanelTarget& to) {
    PanelGroup group, shares, weights;
    uint8_t* codes = to.codes;
    const Floats zero = fill(0), one = fill(1);
    for (int64_t g = 0; g < source.groups; ++g, codes += source.group * kLanes / 2) {
        read_group(source, g, group);
        const Floats largest = largest_magnitudes(group, source.group);
        const Floats share = where_less(zero, largest, one / largest, zero);
        for (int64_t k = 0; k < source.group; ++k)
            store(shares.values + k * kLanes, group.at(k) * share);
        weigh(shares, source.group, weights);
        float scales[kLanes];
        store(scales, best_nf4_scale(shares, weights, source.group) * largest);
        uint16_t* const there = static_cast<uint16_t*>(to.scales) + g * kLanes;
        for (int i = 0; i < kLanes; ++i) there[i] = bf16_of(scales[i]);
        const Floats scale = load_bf16(there);
        const Floats reciprocal = where_less(zero, magnitude(scale), one / scale, zero);
        for (int64_t k = 0; k < source.group; ++k)
            keep_nibbles(codes, k, nearest_nf4(group.at(k) * reciprocal).code);
    }
}

constexpr MatrixKernels kMatrix{
    {multiply_row_major<F32>, multiply_row_major<Bf16>, multiply_row_major<Fp16>,
     multiply_panels<Int8Tiles>, multiply_panels<Int4Tiles>, multiply_panels<Nf4Tiles>},
    round_row,
    to_int8,
    to_int4,
    to_nf4,
    nullptr};

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
