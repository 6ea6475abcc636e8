// flat_loops.h and packing_loops.h compiled for AVX2; see lib/kernels/CMakeLists.txt for the flags.
#if defined(__x86_64__)
#include "kernels/cpu/flat_loops.h"
#include "kernels/cpu/packing_loops.h"

namespace dslaunch::kernels {

const FlatKernels kAvx2Kernels{adam,          adagrad, lion,    sgd,       sum,      accumulate,
                               block_squares, to_bf16, to_fp16, from_bf16, from_fp16};

const PackingKernels kAvx2Packing = kPacking;

}  // namespace dslaunch::kernels
#endif
