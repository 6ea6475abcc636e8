// flat_loops.h, packing_loops.h and sign_loops.h compiled for AVX2; see lib/kernels/CMakeLists.txt
// for the flags.
#if defined(__x86_64__)
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"
#include "kernels/cpu/sign_loops.h"

namespace dslaunch::kernels {

const FlatKernels kAvx2Kernels = kFlat;

const PackingKernels kAvx2Packing = kPacking;

const SignKernels kAvx2Signs = kSigns;

}  // namespace dslaunch::kernels
#endif
