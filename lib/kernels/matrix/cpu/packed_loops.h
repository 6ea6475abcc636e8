// Products with packed weights, compiled like row_major_loops.h. Each of a panel's 16 outputs has
// one lane. For int8 and int4, a group is summed exactly, in integers; for NF4 it is summed in
// fp32. The groups are added in order. Everything here has internal linkage.
#pragma once

#include "kernels/matrix/cpu/lanes.h"
#include "kernels/matrix/cpu/matrix_kernels.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// The number of rows whose rounded activations stay in L2 while several panels are multiplied by
// them.
constexpr int64_t kPanelChunkRows = 64;
// The number of bytes of panels that stay in L2 while all rows are multiplied by them.
constexpr int64_t kPanelsBytes = 1 << 20;
// The prefetch distance for panels that are read for the first time, in bytes.
constexpr int64_t kPanelAhead = 3072;
constexpr int64_t kScalesAhead = 1024;

struct PanelTile {
    const ProductPart* part;
    int64_t panel;
    int64_t row;
};

inline void finish_row(const PanelTile& tile, int r, Floats value) {
    const ProductPart& part = *tile.part;
    const int64_t output = tile.panel * kLanes;
    const int64_t numel = part.end - output < kLanes ? part.end - output : kLanes;
    float* const y = part.y + (tile.row + r) * part.y_stride + output;
    if (part.bias != nullptr) value = value + load_part(part.bias + output, numel);
    if (part.adds) value = load_part(y, numel) + value;
    store_part(y, value, numel);
}

// The rounded activations of a tile's rows: blocks of four rows, one after the other.
template <int kRows>
struct RoundedTile {
    static constexpr int kBlocks = (kRows + kRoundedRows - 1) / kRoundedRows;
    const int8_t* codes[kBlocks];
    const float* scales[kBlocks];
    const int32_t* offsets[kBlocks];
    const float* scaled_sums[kBlocks];

    explicit RoundedTile(const PanelTile& tile) {
        const ProductPart& part = *tile.part;
        const int64_t block = tile.row / kRoundedRows, row = tile.row % kRoundedRows;
        for (int b = 0; b < kBlocks; ++b) {
            const int64_t first = (block + b) * part.groups * kRoundedRows;
            codes[b] = part.x_codes + first * part.group + row * 4;
            scales[b] = part.x_scales + first + row;
            offsets[b] = part.x_offsets + first + row;
            scaled_sums[b] = part.x_scaled_sums + first + row;
        }
    }
    // Returns a pointer to inputs K to K + 3 of row R.
    [[nodiscard]] const int8_t* four(int r, int64_t k) const {
        return codes[r / kRoundedRows] + k * kRoundedRows + r % kRoundedRows * 4;
    }
    // Returns the number in ARRAY for group G of row R.
    template <typename T>
    [[nodiscard]] T at(const T* const (&array)[kBlocks], int r, int64_t g) const {
        return array[r / kRoundedRows][g * kRoundedRows + r % kRoundedRows];
    }
};

template <int kRows>
void int8_tile(const PanelTile& tile) {
    const ProductPart& part = *tile.part;
    const int64_t panel_groups = tile.panel * part.groups;
    const auto* codes = static_cast<const uint8_t*>(part.codes) + panel_groups * part.group * 16;
    const auto* scales = static_cast<const uint16_t*>(part.scales) + panel_groups * 16;
    const RoundedTile<kRows> x(tile);
    const bool ahead = tile.row == 0;
    Floats totals[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) totals[r] = fill(0);
    for (int64_t g = 0; g < part.groups; ++g, scales += 16) {
        Ints sums[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sums[r] = begin_bytes(x.at(x.offsets, r, g));
        const int64_t end = (g + 1) * part.group;
        for (int64_t k = g * part.group; k < end; k += 4, codes += 64) {
            if (ahead) prefetch(codes + kPanelAhead);
            const Bytes64 w = load_bytes(codes);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) sums[r] = dot_bytes(sums[r], w, x.four(r, k));
        }
        if (ahead) prefetch(scales + kScalesAhead / int64_t{sizeof(*scales)});
        const Floats scale = load_bf16(scales);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
            totals[r] = fma(to_floats(sums[r]), scale * fill(x.at(x.scales, r, g)), totals[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) finish_row(tile, r, totals[r]);
}

// Computes a tile with int4 weights. A weight is `factor * scale * code - low_factor * minimum`.
// The second term is the same for a whole group: it is multiplied by the sum of the group's
// activations.
template <int kRows>
void int4_tile(const PanelTile& tile) {
    const ProductPart& part = *tile.part;
    const int64_t panel_groups = tile.panel * part.groups;
    const auto* codes = static_cast<const uint8_t*>(part.codes) + panel_groups * part.group * 8;
    const auto* scales = static_cast<const uint8_t*>(part.scales) + panel_groups * 32;
    const RoundedTile<kRows> x(tile);
    const bool ahead = tile.row == 0;
    Floats totals[kRows], lows[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) totals[r] = lows[r] = fill(0);
    for (int64_t g = 0; g < part.groups; ++g, scales += 32) {
        Ints sums[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sums[r] = begin_nibbles();
        const int64_t end = (g + 1) * part.group;
        for (int64_t k = g * part.group; k < end; k += 8, codes += 64) {
            if (ahead) prefetch(codes + kPanelAhead);
            const Bytes64 w = load_bytes(codes);
            const Bytes64 low = low_nibbles(w), high = high_nibbles(w);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) sums[r] = dot_nibbles(sums[r], low, x.four(r, k));
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) sums[r] = dot_nibbles(sums[r], high, x.four(r, k + 4));
        }
        if (ahead) prefetch(scales + kScalesAhead);
        const Floats scale = load_u8(scales), minimum = load_u8(scales + 16);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            totals[r] = fma(to_floats(sums[r]), scale * fill(x.at(x.scales, r, g)), totals[r]);
            lows[r] = fma(minimum, fill(x.at(x.scaled_sums, r, g)), lows[r]);
        }
    }
    const float* const factors = part.factors + tile.panel * 32;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
        finish_row(tile, r, load(factors) * totals[r] - load(factors + 16) * lows[r]);
}

// Returns x of group g. The last group is copied to FILLED and padded with zeros.
inline const float* group_inputs(const ProductPart& part, int64_t row, int64_t g, float* filled) {
    const int64_t first = g * part.group;
    const float* const x = part.x + row * part.x_stride + first;
    if (first + part.group <= part.in) return x;
    for (int64_t k = 0; k < part.group; ++k) filled[k] = first + k < part.in ? x[k] : 0;
    return filled;
}

template <int kRows>
void nf4_tile(const PanelTile& tile) {
    const ProductPart& part = *tile.part;
    const int64_t panel_groups = tile.panel * part.groups;
    const auto* codes = static_cast<const uint8_t*>(part.codes) + panel_groups * part.group * 8;
    const auto* scales = static_cast<const uint16_t*>(part.scales) + panel_groups * 16;
    const bool ahead = tile.row == 0;
    const Table table = load_table(kNf4Numbers);
    Floats totals[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) totals[r] = fill(0);
    float filled[kRows][kGroupMax];
    for (int64_t g = 0; g < part.groups; ++g, scales += 16) {
        const float* x[kRows];
        Floats sums[kRows][4];  // each sums every fourth input, for four chains of additions
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            x[r] = group_inputs(part, tile.row + r, g, filled[r]);
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) sums[r][k] = fill(0);
        }
        for (int64_t k = 0; k < part.group; k += 8, codes += 64) {
            if (ahead) prefetch(codes + kPanelAhead);
            const Bytes64 w = load_bytes(codes);
            const Bytes64 halves[2] = {low_nibbles(w), high_nibbles(w)};
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                const Floats number = look_up(table, halves[i / 4], i % 4);
#pragma GCC unroll 4
                for (int r = 0; r < kRows; ++r)
                    sums[r][i % 4] = fma(number, fill(x[r][k + i]), sums[r][i % 4]);
            }
        }
        if (ahead) prefetch(scales + kScalesAhead / int64_t{sizeof(*scales)});
        const Floats scale = load_bf16(scales);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
            totals[r] =
                fma((sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]), scale, totals[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) finish_row(tile, r, totals[r]);
}

struct Int8Tiles {
    static constexpr int kRows = kByteRows;
    template <int kCount>
    static void run(const PanelTile& tile) {
        int8_tile<kCount>(tile);
    }
};

struct Int4Tiles {
    static constexpr int kRows = kByteRows;
    template <int kCount>
    static void run(const PanelTile& tile) {
        int4_tile<kCount>(tile);
    }
};

struct Nf4Tiles {
    static constexpr int kRows = kByteRows < 8 ? 1 : 4;
    template <int kCount>
    static void run(const PanelTile& tile) {
        nf4_tile<kCount>(tile);
    }
};

// Computes ROWS rows in tiles of kCount rows. Computes the remaining rows in tiles of kCount / 2
// rows, and so on.
template <typename Tiles, int kCount>
void panel_rows(PanelTile tile, int64_t rows) {
    for (; rows >= kCount; rows -= kCount, tile.row += kCount) Tiles::template run<kCount>(tile);
    if constexpr (kCount > 1)
        if (rows > 0) panel_rows<Tiles, kCount / 2>(tile, rows);
}

template <typename Tiles>
void multiply_panels(const ProductPart& part) {
    const int64_t begin = part.begin / kLanes, end = (part.end + kLanes - 1) / kLanes;
    const int64_t fitting = kPanelsBytes / (part.groups * part.group * kLanes);
    const int64_t together = fitting < 1 ? 1 : fitting;
    for (int64_t first = begin; first < end; first += together) {
        const int64_t last = first + together < end ? first + together : end;
        for (int64_t r = 0; r < part.rows; r += kPanelChunkRows) {
            const int64_t left = part.rows - r;
            const int64_t rows = left < kPanelChunkRows ? left : kPanelChunkRows;
            for (int64_t panel = first; panel < last; ++panel)
                panel_rows<Tiles, Tiles::kRows>({&part, panel, r}, rows);
        }
    }
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
