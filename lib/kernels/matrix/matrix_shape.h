// The description of a stored matrix of weights: its form, its sizes and groups, and the offsets of
// a packed form's parts. It is saved with the matrix. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/kinds/dtype.h"

namespace dslaunch::kernels {

// The forms in which weights are stored.
enum class MatrixForm : uint8_t {
    kF32,   // row-major, unchanged
    kBf16,  // row-major, unchanged
    kFp16,  // row-major, unchanged
    kInt8,  // groups of inputs, each with a bf16 scale: 8.5 bits a weight in groups of 32
    kInt4,  // groups with 8-bit scale and minimum, times factors of the row: 4.5 bits, groups of 32
    kNf4,   // QLoRA's table of 16 numbers (Dettmers et al. 2023), groups with a bf16 scale that may
            // be negative: 4.5 bits, groups of 32
};

// The meaning of a matrix's bytes; it is saved with them.
struct MatrixShape {
    MatrixForm form = MatrixForm::kF32;
    int64_t out = 0;    // rows: outputs of the product
    int64_t in = 0;     // columns: its inputs
    int64_t group = 0;  // inputs of a row that share a scale; 0 in the row-major forms

    bool operator==(const MatrixShape&) const = default;
};

// The number of outputs in a panel of a packed form; the last panel is padded with zeros.
inline constexpr int64_t kPanelOutputs = 16;
// The default group. Packed forms allow groups of 32, 64 and 128. A group of 32 costs 0.5 bits per
// weight and gives the smallest errors of weights and activations. Groups of all sizes take the
// same time for each byte that a product reads.
inline constexpr int64_t kDefaultGroup = 32;
// The largest number of rows or columns of a matrix, so that no count of its bytes overflows.
inline constexpr int64_t kMatrixSizeMax = int64_t{1} << 28;

// Returns the shape of FORM with its default group.
[[nodiscard]] MatrixShape matrix_shape(MatrixForm form, int64_t out, int64_t in);
// Returns "f32", "bf16", "fp16", "int8", "int4" or "nf4".
[[nodiscard]] std::string_view matrix_form_name(MatrixForm form);
// Returns true for the forms that quantize() makes; the other forms are used as they are in a file.
[[nodiscard]] bool is_packed(MatrixForm form);

// Returns the type of a row-major form's elements. REQUIRES: not is_packed.
[[nodiscard]] DType dtype_of(MatrixForm form);

// Throws Error{kInput} if SHAPE, which may come from a file, is not valid: a size below 1 or above
// kMatrixSizeMax, an unknown form, or a group that the form does not allow.
void check_shape(const MatrixShape& shape);
// Returns the bytes of the matrix. REQUIRES: check_shape passes.
[[nodiscard]] int64_t matrix_bytes(const MatrixShape& shape);

// The layout of a packed form: the codes of all panels, then the scales of all panels, then the
// factors of all panels.
struct PackedLayout {
    int64_t groups = 0;            // groups in a row
    int64_t panels = 0;            // panels in the matrix
    int64_t panel_code_bytes = 0;  // bytes in one panel, like the next two
    int64_t panel_scale_bytes = 0;
    int64_t panel_factor_bytes = 0;

    // Return the offset of the scales, the offset of the factors, and the size of the matrix, in
    // bytes.
    [[nodiscard]] int64_t scales_offset() const { return panels * panel_code_bytes; }
    [[nodiscard]] int64_t factors_offset() const {
        return scales_offset() + panels * panel_scale_bytes;
    }
    [[nodiscard]] int64_t bytes() const { return factors_offset() + panels * panel_factor_bytes; }
};

// REQUIRES: is_packed(shape.form), and check_shape passes.
[[nodiscard]] PackedLayout packed_layout(const MatrixShape& shape);

}  // namespace dslaunch::kernels
