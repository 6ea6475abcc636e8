// Products with row-major weights, compiled once per instruction set by the file that includes this
// one. The order of a sum is the same for every tile. Within a block of kBlockInputs inputs, each
// of 16 lanes sums every 16th product, and sum_4 adds the lanes; blocks are added in order.
// Everything here has internal linkage.
#pragma once

#include "kernels/matrix/cpu/lanes.h"
#include "kernels/matrix/cpu/matrix_kernels.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// The number of inputs in a block: a block of four rows of weights and six rows of activations
// stays in 32 KiB of L1.
constexpr int64_t kBlockInputs = 512;
// The number of rows whose blocks stay in L2 while many outputs are computed from them, and the
// number of these outputs.
constexpr int64_t kChunkRows = 256;
constexpr int64_t kChunkOutputs = kOutputsTogether;
// The largest number of rows for which weights are read from memory in the order in which they are
// stored, one output after the other.
constexpr int64_t kFewRows = 16;

// The prefetch distance for weights that are read for the first time, in bytes.
constexpr int64_t kAheadBytes = 2048;

template <typename T>
struct RowMajorTile {
    const float* x;  // row r at x + r * x_stride
    int64_t x_stride;
    const typename T::Type* w;  // output o at w + o * w_stride
    int64_t w_stride;
    int64_t numel;  // inputs of the block
    float* sums;    // row r at sums + r * kChunkOutputs
    bool first;     // this is the first block: sums have no value yet
    int64_t left;   // number of inputs from the block's start to the row's end, if this tile is the
                    // first to read its weights and thus prefetches; otherwise 0
};

inline void keep(float* sums, const float* values, int outputs, bool first) {
    for (int o = 0; o < outputs; ++o) sums[o] = first ? values[o] : sums[o] + values[o];
}

template <typename T, int kRows, int kOutputs>
void row_major_tile(const RowMajorTile<T>& tile) {
    Floats sums[kRows][kOutputs];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) sums[r][o] = fill(0);
    const auto add_products = [&](int64_t k, int64_t numel) __attribute__((always_inline)) {
        Floats w[kOutputs];
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) w[o] = load_as<T>(tile.w + o * tile.w_stride + k, numel);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            const Floats x = load_part(tile.x + r * tile.x_stride + k, numel);
#pragma GCC unroll 8
            for (int o = 0; o < kOutputs; ++o) sums[r][o] = fma(x, w[o], sums[r][o]);
        }
    };
    int64_t k = 0;
    for (; k + kLanes <= tile.numel; k += kLanes) {
        if (tile.left > 0) {
            // At the end of the rows of these outputs, prefetch the beginning of the rows of the
            // next outputs.
            constexpr int64_t kAhead = kAheadBytes / int64_t{sizeof(typename T::Type)};
            const auto* const next =
                tile.w + k + kAhead + (k + kAhead < tile.left ? 0 : kOutputs - 1) * tile.w_stride;
#pragma GCC unroll 8
            for (int o = 0; o < kOutputs; ++o) prefetch(next + o * tile.w_stride);
        }
        add_products(k, kLanes);
    }
    if (k < tile.numel) add_products(k, tile.numel - k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        float values[4];
        const auto& s = sums[r];
        sum_4(s[0], s[1 % kOutputs], s[2 % kOutputs], s[3 % kOutputs], values);
        keep(tile.sums + r * kChunkOutputs, values, kOutputs, tile.first);
    }
}

template <typename T, int kOutputs>
void row_major_rows(RowMajorTile<T> tile, int64_t rows) {
    for (; rows >= kTileRows; rows -= kTileRows) {
        row_major_tile<T, kTileRows, kOutputs>(tile);
        tile.left = 0;
        tile.x += kTileRows * tile.x_stride;
        tile.sums += kTileRows * kChunkOutputs;
    }
    if constexpr (kTileRows > 5)
        if (rows == 5) row_major_tile<T, 5, kOutputs>(tile);
    if constexpr (kTileRows > 4)
        if (rows == 4) row_major_tile<T, 4, kOutputs>(tile);
    if constexpr (kTileRows > 3)
        if (rows == 3) row_major_tile<T, 3, kOutputs>(tile);
    if constexpr (kTileRows > 2)
        if (rows == 2) row_major_tile<T, 2, kOutputs>(tile);
    if (rows == 1) row_major_tile<T, 1, kOutputs>(tile);
}

// Converts a block of weights to fp32 once if many rows use it.
template <typename T, int kOutputs>
void row_major_block(const RowMajorTile<T>& tile, int64_t rows) {
    if (rows <= kFewRows) return row_major_rows<T, kOutputs>(tile, rows);
    alignas(64) float wide[kOutputs * kBlockInputs];
    for (int o = 0; o < kOutputs; ++o)
        for (int64_t k = 0; k < tile.numel; k += kLanes)
            store(wide + o * kBlockInputs + k,
                  load_as<T>(tile.w + o * tile.w_stride + k, tile.numel - k));
    row_major_rows<F32, kOutputs>(
        {tile.x, tile.x_stride, wide, kBlockInputs, tile.numel, tile.sums, tile.first, 0}, rows);
}

struct Chunk {
    int64_t row, rows, output, outputs;
};

inline void finish_chunk(const ProductPart& part, const Chunk& chunk, const float* sums) {
    for (int64_t r = 0; r < chunk.rows; ++r) {
        float* const y = part.y + (chunk.row + r) * part.y_stride + chunk.output;
        for (int64_t o = 0; o < chunk.outputs; ++o) {
            float value = sums[r * kChunkOutputs + o];
            if (part.bias != nullptr) value += part.bias[chunk.output + o];
            y[o] = part.adds ? y[o] + value : value;
        }
    }
}

template <typename T>
void row_major_outputs(const ProductPart& part, const Chunk& chunk, RowMajorTile<T> tile) {
    for (int64_t o = 0; o < chunk.outputs;) {
        const bool whole = chunk.outputs - o >= kTileOutputs;
        if (whole)
            row_major_block<T, kTileOutputs>(tile, chunk.rows);
        else
            row_major_block<T, 1>(tile, chunk.rows);
        const int64_t step = whole ? kTileOutputs : 1;
        o += step;
        tile.w += step * part.in;
        tile.sums += step;
    }
}

template <typename T>
void few_rows(const ProductPart& part, const Chunk& chunk) {
    alignas(64) float sums[kFewRows * kChunkOutputs];
    const auto* const w = static_cast<const typename T::Type*>(part.codes);
    for (int64_t k = 0; k < part.in; k += kBlockInputs) {
        const int64_t numel = part.in - k < kBlockInputs ? part.in - k : kBlockInputs;
        row_major_outputs<T>(part, chunk,
                             {part.x + k, part.x_stride, w + chunk.output * part.in + k, part.in,
                              numel, sums, k == 0, part.in - k});
    }
    finish_chunk(part, chunk, sums);
}

// Copies the rows of a block, because rows that are a power of 2 apart would share a few sets of
// the caches.
template <typename T>
void many_rows(const ProductPart& part, const Chunk& chunk) {
    alignas(64) float sums[kChunkRows * kChunkOutputs];
    alignas(64) float block[kChunkRows * kBlockInputs];
    const auto* const w = static_cast<const typename T::Type*>(part.codes);
    for (int64_t k = 0; k < part.in; k += kBlockInputs) {
        const int64_t numel = part.in - k < kBlockInputs ? part.in - k : kBlockInputs;
        for (int64_t r = 0; r < chunk.rows; ++r)
            for (int64_t i = 0; i < numel; i += kLanes)
                store(block + r * kBlockInputs + i,
                      load_part(part.x + (chunk.row + r) * part.x_stride + k + i, numel - i));
        row_major_outputs<T>(
            part, chunk,
            {block, kBlockInputs, w + chunk.output * part.in + k, part.in, numel, sums, k == 0, 0});
    }
    finish_chunk(part, chunk, sums);
}

template <typename T>
void multiply_row_major(const ProductPart& part) {
    const bool few = part.rows <= kFewRows;
    const int64_t step = few ? kTileOutputs : kChunkOutputs;
    for (int64_t o = part.begin; o < part.end; o += step) {
        const int64_t outputs = part.end - o < step ? part.end - o : step;
        if (few) {
            few_rows<T>(part, {0, part.rows, o, outputs});
            continue;
        }
        for (int64_t r = 0; r < part.rows; r += kChunkRows) {
            const int64_t rows = part.rows - r < kChunkRows ? part.rows - r : kChunkRows;
            many_rows<T>(part, {r, rows, o, outputs});
        }
    }
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
