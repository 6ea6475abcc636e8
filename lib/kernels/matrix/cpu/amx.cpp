// Products with bf16 weights in AMX tiles; see lib/kernels/CMakeLists.txt for the flags. A tile
// multiplies the weights of 16 outputs, in their layout in memory, by the activations of up to 16
// rows. Each activation is the sum of two bf16 numbers, high + low. Each output of a row has one
// sum of the high parts and one of the low parts, added in the order of the inputs. So the result
// does not depend on the other rows and outputs of the tile.
#if defined(__x86_64__)
#include "kernels/matrix/cpu/packed_loops.h"

namespace dslaunch::kernels {
namespace {

// The prefetch distance for weights, as a number of inputs; the same for each output.
constexpr int64_t kAheadInputs = 64;

// Tells GCC that loading a tile or a configuration reads memory.
inline void is_read(const void* at) {
    asm volatile("" : : "r"(at) : "memory");
}

// Tiles 0 to 3 are sums [outputs, columns]; 4 and 5 are weights [outputs, 32]; 6 and 7 are
// activations [16 pairs of inputs, columns, 2].
struct alignas(64) TileShapes {
    uint8_t palette = 1;
    uint8_t first_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void become(int64_t outputs, int64_t columns) {
        if (rows[0] == outputs && row_bytes[0] == 4 * columns) return;
        for (int i = 0; i < 8; ++i) {
            row_bytes[i] = static_cast<uint16_t>(i == 4 || i == 5 ? 64 : 4 * columns);
            rows[i] = static_cast<uint8_t>(i < 6 ? outputs : 16);
        }
        is_read(this);
        _tile_loadconfig(this);
    }
};

// The outputs and the block of rows that one run of tiles computes.
struct TileRun {
    const ProductPart* part;
    int64_t output;
    int64_t outputs;  // outputs in a tile
    int64_t row;
    int64_t rows;
};

inline int64_t tiles_of(int64_t inputs) {
    return (inputs + kTileInputs - 1) / kTileInputs;
}

// Transposes a matrix [16 rows, 16] of 32-bit numbers: first transposes 4 x 4 blocks, then moves
// these blocks to their places.
inline void turn_over(const float* from, float* to) {
    __m512 rows[16], pairs[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_ps(from + 16 * i);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    // Now 128-bit part b of rows[4 q + c] has column 4 b + c of rows 4 q to 4 q + 3.
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

// Transposes a matrix [rows, columns] of 32-bit numbers to [columns, rows].
inline void turn_over(const float* from, int64_t rows, int64_t columns, float* to) {
    if (rows == 16 && columns == 16) return turn_over(from, to);
    for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
}

// The tiles of a narrow block of rows: 16 outputs per tile, 32 inputs at a time. The tile of
// activations has the high parts of the rows, then the low parts; up to four tiles of weights share
// it.
template <int kTiles>
struct NarrowTiles {
    static constexpr int kOutputs = kTiles * kLanes;
    static int64_t columns(int64_t rows) { return 2 * rows; }

    static void add(const uint16_t* w, int64_t stride, const uint16_t* x, int64_t rows) {
        const int64_t next = kLanes * stride, bytes = stride * int64_t{sizeof(*w)};
        _tile_loadd(6, x, 8 * rows);
        _tile_loadd(4, w, bytes);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kTiles > 1) {
            _tile_loadd(5, w + next, bytes);
            _tile_dpbf16ps(1, 5, 6);
        }
        if constexpr (kTiles > 2) {
            _tile_loadd(4, w + 2 * next, bytes);
            _tile_dpbf16ps(2, 4, 6);
        }
        if constexpr (kTiles > 3) {
            _tile_loadd(5, w + 3 * next, bytes);
            _tile_dpbf16ps(3, 5, 6);
        }
    }
    static void finish(TileRun run) {
        alignas(64) float sums[kTiles][16 * 16], turned[16 * 16];
        const int64_t columns = 2 * run.rows;
        _tile_stored(0, sums[0], 4 * columns);
        if constexpr (kTiles > 1) _tile_stored(1, sums[1], 4 * columns);
        if constexpr (kTiles > 2) _tile_stored(2, sums[2], 4 * columns);
        if constexpr (kTiles > 3) _tile_stored(3, sums[3], 4 * columns);
        for (int t = 0; t < kTiles; ++t, run.output += kLanes) {
            turn_over(sums[t], run.outputs, columns, turned);
            const PanelTile tile{run.part, run.output / kLanes, run.row};
            for (int r = 0; r < run.rows; ++r)
                finish_row(
                    tile, r,
                    load(turned + r * run.outputs) + load(turned + (run.rows + r) * run.outputs));
        }
    }
};

// The tiles of a wide block of rows: one tile of activations has the high parts of the rows, and
// another the low parts.
template <int kTiles>
struct WideTiles {
    static constexpr int kOutputs = kTiles * kLanes;
    static int64_t columns(int64_t rows) { return rows; }

    static void add(const uint16_t* w, int64_t stride, const uint16_t* x, int64_t rows) {
        const int64_t bytes = stride * int64_t{sizeof(*w)};
        _tile_loadd(6, x, 4 * rows);
        _tile_loadd(4, w, bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, x + kTileInputs * rows, 4 * rows);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (kTiles > 1) {
            _tile_loadd(5, w + kLanes * stride, bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    static void finish(TileRun run) {
        alignas(64) float high[kTiles][16 * 16], low[kTiles][16 * 16], turned[16 * 16];
        _tile_stored(0, high[0], 4 * run.rows);
        _tile_stored(1, low[0], 4 * run.rows);
        if constexpr (kTiles > 1) _tile_stored(2, high[1], 4 * run.rows);
        if constexpr (kTiles > 1) _tile_stored(3, low[1], 4 * run.rows);
        for (int t = 0; t < kTiles; ++t, run.output += kLanes) {
            for (int64_t i = 0; i < run.outputs * run.rows; i += kLanes)
                store(high[t] + i, load(high[t] + i) + load(low[t] + i));
            turn_over(high[t], run.outputs, run.rows, turned);
            const PanelTile tile{run.part, run.output / kLanes, run.row};
            for (int r = 0; r < run.rows; ++r) finish_row(tile, r, load(turned + r * run.outputs));
        }
    }
};

template <typename Tiles>
void run_tiles(const TileRun& run, TileShapes& shapes) {
    const ProductPart& part = *run.part;
    shapes.become(run.outputs, Tiles::columns(run.rows));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const auto* w = static_cast<const uint16_t*>(part.codes) + run.output * part.in;
    const uint16_t* x = part.x_halves + run.row * 2 * tiles_of(part.in) * kTileInputs;
    const int64_t outputs = Tiles::kOutputs - kLanes + run.outputs;
    int64_t k = 0;
    for (; k + kTileInputs <= part.in; k += kTileInputs, x += 2 * kTileInputs * run.rows) {
        if (run.row == 0) {
            // At the end of the rows of these outputs, prefetch the beginning of the rows of the
            // next outputs.
            const bool inside = k + kAheadInputs < part.in;
            const uint16_t* const next =
                w + k + kAheadInputs + (inside ? 0 : outputs - 1) * part.in;
            for (int64_t o = 0; o < outputs; ++o) prefetch(next + o * part.in);
        }
        Tiles::add(w + k, part.in, x, run.rows);
    }
    if (k < part.in) {
        alignas(64) uint16_t last[Tiles::kOutputs * kTileInputs] = {};
        for (int64_t o = 0; o < outputs; ++o)
            __builtin_memcpy(last + o * kTileInputs, w + o * part.in + k,
                             static_cast<size_t>(part.in - k) * sizeof(*w));
        is_read(last);
        Tiles::add(last, kTileInputs, x, run.rows);
    }
    Tiles::finish(run);
}

}  // namespace

void multiply_bf16_tiles(const ProductPart& part) {
    TileShapes shapes;
    for (int64_t o = part.begin; o < part.end;) {
        const int64_t left = part.end - o;
        const int64_t outputs = left < 4 * kLanes ? left < kLanes ? left : kLanes : 4 * kLanes;
        for (int64_t r = 0; r < part.rows; r += kTileRowsMax) {
            const int64_t rows = part.rows - r < kTileRowsMax ? part.rows - r : kTileRowsMax;
            TileRun run{&part, o, outputs < kLanes ? outputs : kLanes, r, rows};
            if (rows <= kNarrowRows) {
                if (outputs > kLanes) run_tiles<NarrowTiles<4>>(run, shapes);
                if (outputs <= kLanes) run_tiles<NarrowTiles<1>>(run, shapes);
                continue;
            }
            if (outputs <= kLanes) run_tiles<WideTiles<1>>(run, shapes);
            for (; outputs > kLanes && run.output < o + outputs; run.output += 2 * kLanes)
                run_tiles<WideTiles<2>>(run, shapes);
        }
        o += outputs;
    }
    _tile_release();
}

// Splits each number of x into high + low, both rounded to the nearest bf16.
void split_rows(const float* x, int64_t stride, int64_t in, int64_t rows, uint16_t* to) {
    for (int64_t k = 0; k < in; k += kTileInputs) {
        alignas(64) float parts[2 * 16 * 16];  // [high and low, rows, 16 pairs]
        for (int64_t r = 0; r < rows; ++r) {
            const float* const from = x + r * stride + k;
            const __m512 first = load_part(from, in - k);
            const __m512 second =
                in - k > kLanes ? load_part(from + kLanes, in - k - kLanes) : _mm512_setzero_ps();
            const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(second, first);
            const auto widened = [](__m256i half) {
                return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
            };
            const __m512 first_rest = first - widened(_mm512_castsi512_si256(halves));
            const __m512 second_rest = second - widened(_mm512_extracti64x4_epi64(halves, 1));
            _mm512_store_si512(parts + 16 * r, halves);
            _mm512_store_si512(parts + 16 * (rows + r),
                               (__m512i)_mm512_cvtne2ps_pbh(second_rest, first_rest));
        }
        auto* const there = reinterpret_cast<float*>(to);
        turn_over(parts, rows <= kNarrowRows ? 2 * rows : rows, 16, there);
        if (rows > kNarrowRows) turn_over(parts + 16 * rows, rows, 16, there + 16 * rows);
        to += 2 * kTileInputs * rows;
    }
}

}  // namespace dslaunch::kernels
#endif
