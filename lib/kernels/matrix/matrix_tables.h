// The matrix kernels of an instruction set, and where the parts of a packed matrix lie. For the
// files of this folder alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matrix/cpu/matrix_kernels.h"
#include "kernels/matrix/cpu/token_kernels.h"
#include "kernels/matrix/matrix_isa.h"
#include "kernels/matrix/packed_matrix.h"

namespace dslaunch::kernels {

// REQUIRES: ISA is available.
[[nodiscard]] const MatrixKernels& matrix_kernels_of(MatrixIsa isa);
[[nodiscard]] const TokenKernels& token_kernels_of(MatrixIsa isa);

// A packed form is codes, then scales, then factors: panels of each, one after the other.
struct PackedLayout {
    int64_t groups = 0;            // of a row
    int64_t panels = 0;            // of the matrix
    int64_t panel_code_bytes = 0;  // of one panel, and so the next two
    int64_t panel_scale_bytes = 0;
    int64_t panel_factor_bytes = 0;

    [[nodiscard]] int64_t scales_offset() const { return panels * panel_code_bytes; }
    [[nodiscard]] int64_t factors_offset() const {
        return scales_offset() + panels * panel_scale_bytes;
    }
    [[nodiscard]] int64_t bytes() const { return factors_offset() + panels * panel_factor_bytes; }
};

// REQUIRES: is_packed, check_shape passes.
[[nodiscard]] PackedLayout packed_layout(const MatrixShape& shape);

}  // namespace dslaunch::kernels
