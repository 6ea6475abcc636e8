// The table of matrix kernels that each instruction set fills, over raw pointers; see
// kernels/cpu/kernel_tables.h for what these files may include. Callers check the sizes.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

// The number of rows of rounded activations that are stored together, so that one pointer reads
// them all.
inline constexpr int64_t kRoundedRows = 4;

// The largest number of inputs that share a scale.
inline constexpr int64_t kGroupMax = 128;

// The number of rows of activations in one AMX tile, and the number of inputs of each of these
// rows. With at most kNarrowRows rows, the high and low parts of the activations fit in one tile.
inline constexpr int64_t kTileRowsMax = 16;
inline constexpr int64_t kTileInputs = 32;
inline constexpr int64_t kNarrowRows = 8;

// The number of outputs that share one read of many rows of activations.
inline constexpr int64_t kOutputsTogether = 256;

// Outputs [begin, end) of one product. In packed forms, `codes` are panels of 16 outputs, [panels,
// groups, group · 16 codes], `scales` [panels, groups, 16 of each kind], `factors` [panels, 2, 16].
struct ProductPart {
    const void* codes;
    const void* scales;
    const float* factors;
    int64_t in, out;
    int64_t group, groups;
    int64_t begin, end;
    int64_t rows;
    const float* x;  // row r at x + r * x_stride
    int64_t x_stride;
    // x rounded to int8, in blocks of kRoundedRows rows: the codes are [blocks, inputs / 4,
    // kRoundedRows, 4], and the arrays per group are [blocks, groups, kRoundedRows].
    const int8_t* x_codes;
    const float* x_scales;
    const int32_t* x_offsets;    // -128 · the sum of the codes
    const float* x_scaled_sums;  // scale · the sum of the codes
    // x in blocks of kTileRowsMax rows, one after the other, in the layout that split_rows writes.
    const uint16_t* x_halves;
    float* y;  // row r at y + r * y_stride
    int64_t y_stride;
    const float* bias;
    bool adds;
};

// The addresses of one row of activations, rounded to int8, in the arrays of ProductPart.
struct RoundedRow {
    int8_t* codes;
    float* scales;
    int32_t* offsets;
    float* scaled_sums;
};

// Up to 16 rows of weights for one panel, converted to fp32. If a row's pointer is null, its
// weights are 0.
struct PanelSource {
    const float* rows[16];
    int64_t in, group, groups;
};

// The memory that receives one panel; the arrays are as in ProductPart. Only to_int4 uses
// `scratch`.
struct PanelTarget {
    uint8_t* codes;
    void* scales;
    float* factors;
    float* scratch;  // [groups, 2, 16]
};

// The kernels of one instruction set.
struct MatrixKernels {
    void (*multiply[6])(const ProductPart&);  // one function for each MatrixForm
    void (*round_row)(const float* x, int64_t in, int64_t group, const RoundedRow& to);
    void (*to_int8)(const PanelSource&, const PanelTarget&);
    void (*to_int4)(const PanelSource&, const PanelTarget&);
    void (*to_nf4)(const PanelSource&, const PanelTarget&);
    // Splits ROWS <= kTileRowsMax rows of activations into a high and a low bf16 part. For each
    // kTileInputs inputs, writes an array [16 pairs, 2 * rows, 2]: for each pair of inputs, first
    // the high parts of all rows, then the low parts. With more than kNarrowRows rows, the array is
    // [2 parts, 16 pairs, rows, 2]. Pads the inputs with zeros. Null if products with bf16 weights
    // use fp32 activations.
    void (*split_rows)(const float* x, int64_t stride, int64_t in, int64_t rows, uint16_t* to);
};

extern const MatrixKernels kScalarMatrix;
extern const MatrixKernels kNeonMatrix;
extern const MatrixKernels kNeonDotMatrix;
extern const MatrixKernels kAvx2Matrix;
extern const MatrixKernels kAvx2VnniMatrix;
extern const MatrixKernels kAvx512Matrix;
extern const MatrixKernels kAvx512VnniMatrix;

// AMX has these two kernels; the rest of its table is the table of AVX-512 with VNNI.
void multiply_bf16_tiles(const ProductPart& part);
void split_rows(const float* x, int64_t stride, int64_t in, int64_t rows, uint16_t* to);

// The numbers of QLoRA's NormalFloat4 (Dettmers et al. 2023, appendix E), as in bitsandbytes.
inline constexpr float kNf4Numbers[16] = {-1.0F,
                                          -0.6961928009986877F,
                                          -0.5250730514526367F,
                                          -0.39491748809814453F,
                                          -0.28444138169288635F,
                                          -0.18477343022823334F,
                                          -0.09105003625154495F,
                                          0.0F,
                                          0.07958029955625534F,
                                          0.16093020141124725F,
                                          0.24611230194568634F,
                                          0.33791524171829224F,
                                          0.44070982933044434F,
                                          0.5626170039176941F,
                                          0.7229568362236023F,
                                          1.0F};

}  // namespace dslaunch::kernels
