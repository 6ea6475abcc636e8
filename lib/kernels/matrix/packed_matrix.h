// Weights [out, in] in the form in which products read them: as in the model's file (fp32, bf16,
// fp16), or in fewer bits. Data path: a model's file -> (quantize) -> packed bytes -> multiply.h.
// A packed form is a flat array of bytes, little-endian, equal on all instruction sets, so that it
// may be saved and mapped with its MatrixShape beside it. Threads: pure functions but for the team
// that a caller gives.
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

// Weights that somebody else owns. DATA: matrix_bytes(shape) of them; aligned to the element
// (kF32: 4, kBf16, kFp16: 2) or to 4 bytes in a packed form; fastest when aligned to 64.
struct PackedMatrix {
    MatrixShape shape;
    const std::byte* data = nullptr;
};

// Rows of weights as a file has them.
struct SourceRows {
    const void* data = nullptr;  // [rows.numel, in] row-major, contiguous, aligned to the element
    DType dtype = DType::kF32;   // kF32, kBF16 or kF16
    Range rows;                  // which rows of the matrix these are
};

// Writes the panels of SOURCE's rows to PACKED, which is the whole matrix; rounding is to nearest
// (kInt4 and kNf4: with the scale, and minimum, of least weighted squared error that a search
// finds). A row's bytes depend only on that row: not on ISA, the team, or the other rows. A group
// with a number that is not finite becomes NaN whole (kInt4: its row). A group may end past IN:
// missing numbers count as 0. REQUIRES: is_packed; rows.begin is a multiple of kPanelOutputs, and
// so is its end or it is OUT; PACKED has matrix_bytes and is aligned to 4 bytes.
void quantize(const MatrixShape& shape, const SourceRows& source, std::span<std::byte> packed,
              ThreadTeam& team, MatrixIsa isa = matrix_isa_in_use());

// Writes the numbers that products take for the weights to OUT, [rows.numel, in] fp32, contiguous.
// Threads: the caller's. REQUIRES: ROWS lies within the matrix.
void dequantize(const PackedMatrix& matrix, Range rows, float* out);

}  // namespace dslaunch::kernels
