#include "kernels/matrix/matrix_tables.h"

#include "base/check.h"
#include "kernels/matrix/matrix_shape.h"

namespace dslaunch::kernels {

#if defined(__x86_64__)
namespace {

MatrixKernels amx_kernels() {
    MatrixKernels kernels = kAvx512VnniMatrix;
    kernels.multiply[static_cast<size_t>(MatrixForm::kBf16)] = multiply_bf16_tiles;
    kernels.split_rows = split_rows;
    return kernels;
}

}  // namespace
#endif

const MatrixKernels& matrix_kernels_of(MatrixIsa isa) {
    DSL_CHECK(matrix_isa_available(isa), "this processor or this build does not support {}",
              matrix_isa_name(isa));
#if defined(__x86_64__)
    static const MatrixKernels amx = amx_kernels();
    constexpr const MatrixKernels* kNotHere = nullptr;
    const MatrixKernels* const all[] = {
        &kScalarMatrix,   kNotHere,       kNotHere,           &kAvx2Matrix,
        &kAvx2VnniMatrix, &kAvx512Matrix, &kAvx512VnniMatrix, &amx};
    return *all[static_cast<size_t>(isa)];
#elif defined(__aarch64__)
    if (isa == MatrixIsa::kNeonDot) return kNeonDotMatrix;
    if (isa == MatrixIsa::kNeon) return kNeonMatrix;
#endif
    return kScalarMatrix;
}

// Returns the token kernels of ISA. These kernels use no dot products of bytes, so instruction sets
// with and without dot products share a table.
const TokenKernels& token_kernels_of(MatrixIsa isa) {
    DSL_CHECK(matrix_isa_available(isa), "this processor or this build does not support {}",
              matrix_isa_name(isa));
#if defined(__x86_64__)
    if (isa >= MatrixIsa::kAvx512) return kAvx512Token;
    if (isa >= MatrixIsa::kAvx2) return kAvx2Token;
#elif defined(__aarch64__)
    if (isa >= MatrixIsa::kNeon) return kNeonToken;
#endif
    return kScalarToken;
}

}  // namespace dslaunch::kernels
