// The loops of kernels/cpu and of this folder compiled for AVX-512; see
// lib/kernels/CMakeLists.txt for the flags.
#if defined(__x86_64__)
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"
#include "kernels/cpu/sign_loops.h"
#include "kernels/matrix/cpu/attend_loops.h"
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/rounding_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

namespace dslaunch::kernels {

const FlatKernels kAvx512Flat = kFlat;
const PackingKernels kAvx512Packing = kPacking;
const SignKernels kAvx512Signs = kSigns;
const MatrixKernels kAvx512Matrix = kMatrix;
const TokenKernels kAvx512Token = kToken;

}  // namespace dslaunch::kernels
#endif
