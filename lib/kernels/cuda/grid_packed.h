// Conversion of a packed weight's shape to the arguments of grid_unpack.h. For the host.
#pragma once

#include <algorithm>
#include <iterator>

#include "base/kinds/dtype.h"
#include "kernels/cuda/grid_arguments.h"
#include "kernels/matrix/cpu/matrix_kernels.h"
#include "kernels/matrix/matrix_shape.h"

namespace dslaunch::kernels {

// Returns the arguments for unpacking a weight of SHAPE. PANELS is the weight's data: panels of
// kPanelOutputs rows, each a packed matrix. The result is written to DENSE, [out, in] of DTYPE,
// which is kF32, kBF16 or kF16. REQUIRES: SHAPE is packed.
inline GridPacked grid_packed(const MatrixShape& shape, const void* panels, void* dense,
                              DType dtype) {
    const PackedLayout panel = packed_layout({shape.form, kPanelOutputs, shape.in, shape.group});
    GridPacked packed{};
    packed.panels = static_cast<const uint8_t*>(panels);
    packed.dense = dense;
    packed.out = shape.out;
    packed.in = shape.in;
    packed.group = shape.group;
    packed.panel_bytes = panel.bytes();
    packed.scales_offset = panel.scales_offset();
    packed.factors_offset = panel.factors_offset();
    std::copy(std::begin(kNf4Numbers), std::end(kNf4Numbers), packed.numbers);
    packed.form = shape.form == MatrixForm::kInt8   ? GridForm::kInt8
                  : shape.form == MatrixForm::kInt4 ? GridForm::kInt4
                                                    : GridForm::kNf4;
    packed.halves = dtype != DType::kF32;
    packed.bf16 = dtype == DType::kBF16;
    return packed;
}

}  // namespace dslaunch::kernels
