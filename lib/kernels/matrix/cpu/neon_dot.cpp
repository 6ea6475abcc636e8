// The loops of this folder compiled for NEON with dot products of bytes; see
// lib/kernels/CMakeLists.txt for the flags.
#if defined(__aarch64__)
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/rounding_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

namespace dslaunch::kernels {

const MatrixKernels kNeonDotMatrix = kMatrix;

}  // namespace dslaunch::kernels
#endif
