#include "kernels/matrix/matrix_shape.h"

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::kernels {
namespace {

bool is_form(MatrixForm form) {
    return form <= MatrixForm::kNf4;
}

bool has_group(MatrixForm form, int64_t group) {
    if (!is_packed(form)) return group == 0;
    return group == 32 || group == 64 || group == 128;
}

}  // namespace

MatrixShape matrix_shape(MatrixForm form, int64_t out, int64_t in) {
    return {form, out, in, is_packed(form) ? kDefaultGroup : 0};
}

std::string_view matrix_form_name(MatrixForm form) {
    constexpr std::string_view kNames[] = {"f32", "bf16", "fp16", "int8", "int4", "nf4"};
    return is_form(form) ? kNames[static_cast<size_t>(form)] : "unknown";
}

bool is_packed(MatrixForm form) {
    return form == MatrixForm::kInt8 || form == MatrixForm::kInt4 || form == MatrixForm::kNf4;
}

DType dtype_of(MatrixForm form) {
    if (form == MatrixForm::kF32) return DType::kF32;
    return form == MatrixForm::kBf16 ? DType::kBF16 : DType::kF16;
}

void check_shape(const MatrixShape& shape) {
    const auto in_range = [](int64_t numel) { return numel >= 1 && numel <= kMatrixSizeMax; };
    if (is_form(shape.form) && in_range(shape.out) && in_range(shape.in) &&
        has_group(shape.form, shape.group))
        return;
    fail(ExitCode::kInput,
         "cannot read a matrix of {} outputs and {} inputs in the form {} ({}) with groups of {}; "
         "the file is damaged or was written by another version",
         shape.out, shape.in, matrix_form_name(shape.form), static_cast<int>(shape.form),
         shape.group);
}

int64_t matrix_bytes(const MatrixShape& shape) {
    if (is_packed(shape.form)) return packed_layout(shape).bytes();
    return shape.out * shape.in * dtype_bytes(dtype_of(shape.form));
}

PackedLayout packed_layout(const MatrixShape& shape) {
    DSL_CHECK(is_packed(shape.form), "{} is not a packed form", matrix_form_name(shape.form));
    PackedLayout layout;
    layout.groups = (shape.in + shape.group - 1) / shape.group;
    layout.panels = (shape.out + kPanelOutputs - 1) / kPanelOutputs;
    const int64_t panel_scales = layout.groups * kPanelOutputs;
    const int64_t panel_codes = panel_scales * shape.group;
    layout.panel_code_bytes = shape.form == MatrixForm::kInt8 ? panel_codes : panel_codes / 2;
    layout.panel_scale_bytes = panel_scales * 2;  // bf16; kInt4: 16 scales, then 16 minima
    if (shape.form == MatrixForm::kInt4)
        layout.panel_factor_bytes = 2 * kPanelOutputs * 4;  // fp32, in the same order
    return layout;
}

}  // namespace dslaunch::kernels
