// Weights [out, in] in the form in which products read them: as in the model's file (fp32, bf16,
// fp16), or packed in fewer bits. Data path: a model's file -> (quantize) -> packed bytes ->
// multiply.h. A packed form is a flat array of bytes, little-endian and equal on all instruction
// sets, so that it can be saved with its MatrixShape and mapped into memory. Threads: pure
// functions, except for the team that a caller passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/range.h"
#include "kernels/isa.h"
#include "kernels/matrix/matrix_shape.h"
#include "kernels/thread_team.h"

namespace dslaunch::kernels {

// Weights that another object owns. DATA has matrix_bytes(shape) bytes. It must be aligned to the
// element (kF32: 4, kBf16, kFp16: 2) or, in a packed form, to 4 bytes; it is fastest when aligned
// to 64.
struct PackedMatrix {
    MatrixShape shape;
    const std::byte* data = nullptr;
};

// Rows of weights as they are in a file.
struct SourceRows {
    const void* data = nullptr;  // [rows.numel, in] row-major, contiguous, aligned to the element
    DType dtype = DType::kF32;   // kF32, kBF16 or kF16
    Range rows;                  // the position of these rows in the matrix
};

// Packs SOURCE's rows into their panels of PACKED, which is the whole matrix. Numbers are rounded
// to nearest; for kInt4 and kNf4, a search finds the scale (and minimum) with the least weighted
// squared error. A row's bytes depend only on that row, not on ISA, the team, or the other rows. If
// a number is not finite, all numbers of its group become NaN; with kInt4, all numbers of its row.
// The last group may end past IN; the missing numbers count as 0. REQUIRES: is_packed; the rows
// begin at a multiple of kPanelOutputs, and end at such a multiple or at OUT; PACKED has
// matrix_bytes and is aligned to 4 bytes.
void quantize(const MatrixShape& shape, const SourceRows& source, std::span<std::byte> packed,
              ThreadTeam& team, MatrixIsa isa = matrix_isa_in_use());

// Converts ROWS of MATRIX to fp32, with the same values that products use. OUT is [rows.numel, in],
// contiguous. Threads: the caller's. REQUIRES: ROWS is within the matrix.
void dequantize(const PackedMatrix& matrix, Range rows, float* out);

}  // namespace dslaunch::kernels
