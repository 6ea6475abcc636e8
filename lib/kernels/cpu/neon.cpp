// flat_loops.h, packing_loops.h and sign_loops.h compiled for NEON, which every aarch64 has; see
// lib/kernels/CMakeLists.txt for the flags.
#if defined(__aarch64__)
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"
#include "kernels/cpu/sign_loops.h"

namespace dslaunch::kernels {

const FlatKernels kNeonFlat = kFlat;

const PackingKernels kNeonPacking = kPacking;

const SignKernels kNeonSigns = kSigns;

}  // namespace dslaunch::kernels
#endif
