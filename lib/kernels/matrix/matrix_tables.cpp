#include "kernels/matrix/matrix_tables.h"

#include "base/check.h"

namespace dslaunch::kernels {

const MatrixKernels& matrix_kernels_of(MatrixIsa isa) {
    DSL_CHECK(matrix_isa_available(isa), "this processor or build lacks {}", matrix_isa_name(isa));
#if defined(__x86_64__)
    if (isa == MatrixIsa::kAvx2) return kAvx2Matrix;
    if (isa == MatrixIsa::kAvx2Vnni) return kAvx2VnniMatrix;
    if (isa == MatrixIsa::kAvx512) return kAvx512Matrix;
    if (isa == MatrixIsa::kAvx512Vnni) return kAvx512VnniMatrix;
#endif
    return kScalarMatrix;
}

// Dot products of bytes are of no use here.
const TokenKernels& token_kernels_of(MatrixIsa isa) {
    DSL_CHECK(matrix_isa_available(isa), "this processor or build lacks {}", matrix_isa_name(isa));
#if defined(__x86_64__)
    if (isa == MatrixIsa::kAvx2 || isa == MatrixIsa::kAvx2Vnni) return kAvx2Token;
    if (isa == MatrixIsa::kAvx512 || isa == MatrixIsa::kAvx512Vnni) return kAvx512Token;
#endif
    return kScalarToken;
}

PackedLayout packed_layout(const MatrixShape& shape) {
    PackedLayout layout;
    layout.groups = (shape.in + shape.group - 1) / shape.group;
    layout.panels = (shape.out + kPanelOutputs - 1) / kPanelOutputs;
    const int64_t panel_scales = layout.groups * kPanelOutputs;
    const int64_t panel_codes = panel_scales * shape.group;
    switch (shape.form) {
        case MatrixForm::kInt8:
            layout.panel_code_bytes = panel_codes;
            layout.panel_scale_bytes = panel_scales * 2;  // bf16
            break;
        case MatrixForm::kInt4:
            layout.panel_code_bytes = panel_codes / 2;
            layout.panel_scale_bytes = panel_scales * 2;        // 16 scales, then 16 minima
            layout.panel_factor_bytes = 2 * kPanelOutputs * 4;  // fp32, in the same order
            break;
        case MatrixForm::kNf4:
            layout.panel_code_bytes = panel_codes / 2;
            layout.panel_scale_bytes = panel_scales * 4;  // fp32
            break;
        default:
            DSL_CHECK(false, "{} is not packed", matrix_form_name(shape.form));
    }
    return layout;
}

}  // namespace dslaunch::kernels
