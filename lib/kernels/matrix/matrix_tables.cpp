#include "kernels/matrix/matrix_tables.h"

#include "base/check.h"
#include "kernels/matrix/matrix_shape.h"

namespace dslaunch::kernels {
namespace {

#if defined(__x86_64__)
MatrixKernels amx_kernels() {
    MatrixKernels kernels = kAvx512VnniMatrix;
    kernels.multiply[static_cast<size_t>(MatrixForm::kBf16)] = multiply_bf16_tiles;
    kernels.split_rows = split_rows;
    return kernels;
}
#endif

}  // namespace

const MatrixKernels& matrix_kernels_of(MatrixIsa isa) {
    DSL_CHECK(matrix_isa_available(isa), "this processor or build lacks {}", matrix_isa_name(isa));
#if defined(__x86_64__)
    if (isa == MatrixIsa::kAvx2) return kAvx2Matrix;
    if (isa == MatrixIsa::kAvx2Vnni) return kAvx2VnniMatrix;
    if (isa == MatrixIsa::kAvx512) return kAvx512Matrix;
    if (isa == MatrixIsa::kAvx512Vnni) return kAvx512VnniMatrix;
    if (isa == MatrixIsa::kAmx) {
        static const MatrixKernels kernels = amx_kernels();
        return kernels;
    }
#endif
    return kScalarMatrix;
}

// Dot products of bytes are of no use here.
const TokenKernels& token_kernels_of(MatrixIsa isa) {
    DSL_CHECK(matrix_isa_available(isa), "this processor or build lacks {}", matrix_isa_name(isa));
#if defined(__x86_64__)
    if (isa == MatrixIsa::kAvx2 || isa == MatrixIsa::kAvx2Vnni) return kAvx2Token;
    if (isa >= MatrixIsa::kAvx512) return kAvx512Token;
#endif
    return kScalarToken;
}

}  // namespace dslaunch::kernels
