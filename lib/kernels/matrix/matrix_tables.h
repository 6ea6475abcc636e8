// The kernels of an instruction set. For the files of this folder alone.
#pragma once

#include "kernels/matrix/cpu/matrix_kernels.h"
#include "kernels/matrix/cpu/token_kernels.h"
#include "kernels/matrix/matrix_isa.h"

namespace dslaunch::kernels {

// REQUIRES: ISA is available.
[[nodiscard]] const MatrixKernels& matrix_kernels_of(MatrixIsa isa);
[[nodiscard]] const TokenKernels& token_kernels_of(MatrixIsa isa);

}  // namespace dslaunch::kernels
