// The loops of this folder compiled for one number at a time: the reference; see
// lib/kernels/CMakeLists.txt for the flags.
#include "kernels/matrix/cpu/attend_loops.h"
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/rounding_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

namespace dslaunch::kernels {

const MatrixKernels kScalarMatrix = kMatrix;

const TokenKernels kScalarToken = kToken;

}  // namespace dslaunch::kernels
