// flat_loops.h, packing_loops.h and sign_loops.h compiled for one element at a time: the reference;
// see lib/kernels/CMakeLists.txt for the flags.
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"
#include "kernels/cpu/sign_loops.h"

namespace dslaunch::kernels {

const FlatKernels kScalarKernels = kFlat;

const PackingKernels kScalarPacking = kPacking;

const SignKernels kScalarSigns = kSigns;

}  // namespace dslaunch::kernels
