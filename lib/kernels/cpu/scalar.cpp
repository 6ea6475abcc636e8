// flat_loops.h compiled for one element at a time: the reference; see lib/kernels/CMakeLists.txt
// for the flags.
#include "kernels/cpu/flat_loops.h"

namespace dslaunch::kernels {

const FlatKernels kScalarKernels{adam, sgd, sum, block_squares};

}  // namespace dslaunch::kernels
