// The kernels of each instruction set for matrix products and for a decoder's work on a token.
#pragma once

#include "kernels/isa.h"
#include "kernels/matrix/cpu/matrix_kernels.h"
#include "kernels/matrix/cpu/token_kernels.h"

namespace dslaunch::kernels {

// REQUIRES, for both: ISA is available. Used only inside this library.
[[nodiscard]] const MatrixKernels& matrix_kernels_of(MatrixIsa isa);
[[nodiscard]] const TokenKernels& token_kernels_of(MatrixIsa isa = matrix_isa_in_use());

}  // namespace dslaunch::kernels
