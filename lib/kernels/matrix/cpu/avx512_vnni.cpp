// The loops of this folder compiled for AVX-512 with AVX512-VNNI; see lib/kernels/CMakeLists.txt
// for the flags.
#if defined(__x86_64__)
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/rounding_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

namespace dslaunch::kernels {

const MatrixKernels kAvx512VnniMatrix = kMatrix;

}  // namespace dslaunch::kernels
#endif
