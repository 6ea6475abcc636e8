// The loops of kernels/cpu and of this folder compiled for NEON, which every 64-bit ARM has; see
// lib/kernels/CMakeLists.txt for the flags.
#if defined(__aarch64__)
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"
#include "kernels/cpu/sign_loops.h"
#include "kernels/matrix/cpu/attend_loops.h"
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/rounding_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

namespace dslaunch::kernels {

const FlatKernels kNeonFlat = kFlat;
const PackingKernels kNeonPacking = kPacking;
const SignKernels kNeonSigns = kSigns;
const MatrixKernels kNeonMatrix = kMatrix;
const TokenKernels kNeonToken = kToken;

}  // namespace dslaunch::kernels
#endif
