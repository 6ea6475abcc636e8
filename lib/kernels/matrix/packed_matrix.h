// Weights [out, in] in the form in which products read them: as in the model's file (fp32, bf16,
// fp16), or in fewer bits. Data path: a model's file -> (quantize) -> packed bytes -> multiply.h.
// A packed form is a flat array of bytes, little-endian, equal on all instruction sets, so that it
// may be saved and mapped with its MatrixShape beside it. Threads: pure functions but for the team
// that a caller gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/kinds/dtype.h"
#include "base/range.h"
#include "kernels/matrix/matrix_isa.h"
#include "kernels/thread_team.h"

namespace dslaunch::kernels {

enum class MatrixForm : uint8_t {
    kF32,   // row-major, unchanged
    kBf16,  // row-major, unchanged
    kFp16,  // row-major, unchanged
    kInt8,  // groups of inputs, each with a bf16 scale: 8.5 bits a weight in groups of 32
    kInt4,  // groups with an 8-bit scale and minimum that each row scales: 4.5 bits, groups of 32
    kNf4,   // QLoRA's table of 16 numbers (Dettmers et al. 2023), groups with an fp32 scale: 4.5
            // bits in groups of 64
};

// What the bytes of a matrix mean; it is saved beside them.
struct MatrixShape {
    MatrixForm form = MatrixForm::kF32;
    int64_t out = 0;    // rows: outputs of the product
    int64_t in = 0;     // columns: its inputs
    int64_t group = 0;  // inputs of a row that share a scale; 0 in the row-major forms

    bool operator==(const MatrixShape&) const = default;
};

// The layout that a saved matrix was written in; another number is another layout.
inline constexpr int64_t kMatrixLayout = 1;
// Packed outputs lie in panels of so many, the last one filled up with zeros.
inline constexpr int64_t kPanelOutputs = 16;
// Groups that kInt8 and kInt4 take: 32, 64, 128 (kNf4: 64). A group of 32 costs 0.5 bits a weight
// and has the least error of weights and of activations; the products are as fast a byte.
inline constexpr int64_t kDefaultGroup = 32;
// No size of a matrix is larger, so that no count of its bytes overflows.
inline constexpr int64_t kMatrixSizeMax = int64_t{1} << 28;

// The shape of FORM with its default group.
[[nodiscard]] MatrixShape matrix_shape(MatrixForm form, int64_t out, int64_t in);
// "f32", "bf16", "fp16", "int8", "int4", "nf4".
[[nodiscard]] std::string_view matrix_form_name(MatrixForm form);
// True for the forms that quantize makes; the others are used as they lie in a file.
[[nodiscard]] bool is_packed(MatrixForm form);

// Throws Error{kInput} when SHAPE, which may come from a file, is none: a size below 1 or above
// kMatrixSizeMax, an unknown form, or a group that the form does not have.
void check_shape(const MatrixShape& shape);
// Bytes of the matrix. REQUIRES: check_shape passes.
[[nodiscard]] int64_t matrix_bytes(const MatrixShape& shape);

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
    dslaunch::Range rows;        // which rows of the matrix these are
};

// Writes the panels of SOURCE's rows to PACKED, which is the whole matrix; rounding is to nearest
// (kInt4: the scale and minimum of least weighted squared error that a search finds). A row's bytes
// depend on nothing but that row: not on ISA, the team, or the other rows. A group that has a
// number which is not finite becomes NaN whole (kInt4: its row). A group may end past IN: what is
// missing counts as 0. REQUIRES: is_packed; rows.begin is a multiple of kPanelOutputs, and so is
// its end or it is OUT; PACKED has matrix_bytes and is aligned to 4 bytes.
void quantize(const MatrixShape& shape, const SourceRows& source, std::span<std::byte> packed,
              ThreadTeam& team, MatrixIsa isa = matrix_isa_in_use());

// The numbers that products take the weights for. OUT: [rows.numel, in] fp32, contiguous. Threads:
// none of its own. REQUIRES: ROWS lies within the matrix.
void dequantize(const PackedMatrix& matrix, dslaunch::Range rows, float* out);

}  // namespace dslaunch::kernels
