// Products with bf16 weights in tiles of AMX; see lib/kernels/CMakeLists.txt for the flags. A tile
// multiplies 16 outputs' weights, as they lie in memory, by the activations of up to 16 rows, each
// the sum of two bf16 numbers. Every output and row has one chain of additions, in the order of its
// inputs, whatever is beside it.
#if defined(__x86_64__)
#include "kernels/matrix/cpu/packed_loops.h"

namespace dslaunch::kernels {
namespace {

constexpr int64_t kTileInputs = 32;
// Outputs whose tiles share one reading of the activations: four chains of additions.
constexpr int64_t kTilesTogether = 4;
// How far ahead of the loop weights are asked for, in bytes of a row.
constexpr int64_t kTileAhead = 512;

// Tiles 0 to 3 are sums [outputs, rows], 4 and 5 weights [outputs, 32], 6 and 7 activations
// [16 pairs of inputs, rows, 2].
struct alignas(64) TileShapes {
    uint8_t palette = 1;
    uint8_t first_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    TileShapes(int64_t outputs, int64_t x_rows) {
        for (int i = 0; i < 8; ++i) {
            row_bytes[i] = static_cast<uint16_t>(i == 4 || i == 5 ? 64 : 4 * x_rows);
            rows[i] = static_cast<uint8_t>(i < 6 ? outputs : 16);
        }
    }
};

// What the tiles of some outputs and of one block of rows read.
struct TileRun {
    const MatrixPart* part;
    int64_t output;
    int64_t outputs;  // of a tile
    int64_t row;
    int64_t rows;
};

inline int64_t tiles_of(int64_t inputs) {
    return (inputs + kTileInputs - 1) / kTileInputs;
}

// A matrix [16 rows, 16] of 32-bit numbers is turned over: quads of four rows, then their order.
inline void turn_over(const float* from, float* to) {
    __m512 rows[16], pairs[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_ps(from + 16 * i);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    // rows[4 q + c]: in each 128 bits b, column 4 b + c of rows 4 q to 4 q + 3.
#pragma GCC unroll 4
    for (int q = 0; q < 16; q += 4)
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            const __m512d a = _mm512_castps_pd(pairs[q + i]);
            const __m512d b = _mm512_castps_pd(pairs[q + i + 2]);
            rows[q + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            rows[q + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
        const __m512 even = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0x88);
        const __m512 odd = _mm512_shuffle_f32x4(rows[c], rows[4 + c], 0xDD);
        const __m512 even_below = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0x88);
        const __m512 odd_below = _mm512_shuffle_f32x4(rows[8 + c], rows[12 + c], 0xDD);
        _mm512_storeu_ps(to + 16 * c, _mm512_shuffle_f32x4(even, even_below, 0x88));
        _mm512_storeu_ps(to + 16 * (4 + c), _mm512_shuffle_f32x4(odd, odd_below, 0x88));
        _mm512_storeu_ps(to + 16 * (8 + c), _mm512_shuffle_f32x4(even, even_below, 0xDD));
        _mm512_storeu_ps(to + 16 * (12 + c), _mm512_shuffle_f32x4(odd, odd_below, 0xDD));
    }
}

// The sums of a tile, [outputs, rows], go to rows of y.
inline void finish_tile(const TileRun& run, const float* sums) {
    alignas(64) float turned[16 * 16];
    if (run.rows == 16)
        turn_over(sums, turned);
    else
        for (int64_t o = 0; o < run.outputs; ++o)
            for (int64_t r = 0; r < run.rows; ++r) turned[16 * r + o] = sums[run.rows * o + r];
    const PanelTile tile{run.part, run.output / kLanes, run.row};
    for (int64_t r = 0; r < run.rows; ++r)
        finish_row(tile, static_cast<int>(r), load(turned + 16 * r));
}

// The products of 32 inputs. W: [outputs of all tiles, STRIDE bytes].
template <int kTiles>
inline void add_tiles(const uint16_t* w, int64_t stride, const uint16_t* x, int64_t rows) {
    const int64_t x_stride = 4 * rows, next = 8 * stride;
    _tile_loadd(6, x, x_stride);
    _tile_loadd(7, x + 32 * rows, x_stride);
    _tile_loadd(4, w, stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTiles > 1) {
        _tile_loadd(5, w + next, stride);
        _tile_dpbf16ps(1, 5, 6);
    }
    _tile_dpbf16ps(0, 4, 7);
    if constexpr (kTiles > 2) {
        _tile_loadd(4, w + 2 * next, stride);
        _tile_dpbf16ps(2, 4, 6);
    }
    if constexpr (kTiles > 1) _tile_dpbf16ps(1, 5, 7);
    if constexpr (kTiles > 3) {
        _tile_loadd(5, w + 3 * next, stride);
        _tile_dpbf16ps(3, 5, 6);
    }
    if constexpr (kTiles > 2) _tile_dpbf16ps(2, 4, 7);
    if constexpr (kTiles > 3) _tile_dpbf16ps(3, 5, 7);
}

template <int kTiles>
inline void finish_tiles(TileRun run) {
    alignas(64) float sums[kTiles][16 * 16];
    const int64_t stride = 4 * run.rows;
    _tile_stored(0, sums[0], stride);
    if constexpr (kTiles > 1) _tile_stored(1, sums[1], stride);
    if constexpr (kTiles > 2) _tile_stored(2, sums[2], stride);
    if constexpr (kTiles > 3) _tile_stored(3, sums[3], stride);
    for (int t = 0; t < kTiles; ++t, run.output += kLanes) finish_tile(run, sums[t]);
}

template <int kTiles>
void run_tiles(const TileRun& run) {
    const MatrixPart& part = *run.part;
    const TileShapes shapes(run.outputs, run.rows);
    _tile_loadconfig(&shapes);  // which sets all tiles to 0
    const auto* w = static_cast<const uint16_t*>(part.codes) + run.output * part.in;
    const uint16_t* x = part.x_halves + run.row * 2 * tiles_of(part.in) * kTileInputs;
    const int64_t outputs = (kTiles - 1) * kLanes + run.outputs;
    int64_t k = 0;
    for (; k + kTileInputs <= part.in; k += kTileInputs, x += 64 * run.rows) {
        if (run.row == 0)
            for (int64_t o = 0; o < outputs; ++o)
                prefetch(w + o * part.in + k + kTileAhead / int64_t{sizeof(*w)});
        add_tiles<kTiles>(w + k, 2 * part.in, x, run.rows);
    }
    if (k < part.in) {
        alignas(64) uint16_t last[kTiles * kLanes * kTileInputs] = {};
        for (int64_t o = 0; o < outputs; ++o)
            __builtin_memcpy(last + o * kTileInputs, w + o * part.in + k,
                             static_cast<size_t>(part.in - k) * sizeof(*w));
        add_tiles<kTiles>(last, 64, x, run.rows);
    }
    finish_tiles<kTiles>(run);
}

}  // namespace

void multiply_bf16_tiles(const MatrixPart& part) {
    for (int64_t o = part.begin; o < part.end;) {
        const int64_t left = part.end - o;
        const int64_t whole = left / kLanes;
        const int64_t tiles = whole < 1 ? 1 : whole < kTilesTogether ? whole : kTilesTogether;
        for (int64_t r = 0; r < part.rows; r += kTileRowsMax) {
            const int64_t rows = part.rows - r < kTileRowsMax ? part.rows - r : kTileRowsMax;
            const TileRun run{&part, o, left < kLanes ? left : kLanes, r, rows};
            if (tiles == 4) run_tiles<4>(run);
            if (tiles == 3) run_tiles<3>(run);
            if (tiles == 2) run_tiles<2>(run);
            if (tiles == 1) run_tiles<1>(run);
        }
        o += tiles * kLanes;
    }
    _tile_release();
}

// x ~ high + low, both rounded to the nearest bf16.
void split_rows(const float* x, int64_t stride, int64_t in, int64_t rows, uint16_t* to) {
    for (int64_t k = 0; k < in; k += kTileInputs) {
        alignas(64) float high[16 * 16], low[16 * 16];
        for (int64_t r = 0; r < rows; ++r) {
            const float* const from = x + r * stride + k;
            const __m512 first = load_part(from, in - k).v;
            const __m512 second = in - k > kLanes ? load_part(from + kLanes, in - k - kLanes).v
                                                  : _mm512_setzero_ps();
            const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(second, first);
            const auto widened = [](__m256i half) {
                return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
            };
            const __m512 first_rest = first - widened(_mm512_castsi512_si256(halves));
            const __m512 second_rest = second - widened(_mm512_extracti64x4_epi64(halves, 1));
            _mm512_store_si512(high + 16 * r, halves);
            _mm512_store_si512(low + 16 * r,
                               (__m512i)_mm512_cvtne2ps_pbh(second_rest, first_rest));
        }
        const float* const parts[] = {high, low};
        for (const float* const from : parts) {
            auto* const turned = reinterpret_cast<float*>(to);
            if (rows == 16)
                turn_over(from, turned);
            else
                for (int64_t p = 0; p < 16; ++p)
                    for (int64_t r = 0; r < rows; ++r) turned[p * rows + r] = from[16 * r + p];
            to += 32 * rows;
        }
    }
}

}  // namespace dslaunch::kernels
#endif
