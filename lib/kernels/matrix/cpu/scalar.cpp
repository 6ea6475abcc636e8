// The loops of kernels/cpu and of this folder compiled without vector instructions: the reference.
// See lib/kernels/CMakeLists.txt for the flags.
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"
#include "kernels/cpu/sign_loops.h"
#include "kernels/matrix/cpu/attend_loops.h"
#include "kernels/matrix/cpu/packed_loops.h"
#include "kernels/matrix/cpu/rounding_loops.h"
#include "kernels/matrix/cpu/row_major_loops.h"

namespace dslaunch::kernels {

const FlatKernels kScalarFlat = kFlat;
const PackingKernels kScalarPacking = kPacking;
const SignKernels kScalarSigns = kSigns;
const MatrixKernels kScalarMatrix = kMatrix;
const TokenKernels kScalarToken = kToken;

}  // namespace dslaunch::kernels
