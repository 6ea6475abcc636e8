// The loops of flat_loops.h compiled for AVX-512 with its conversion to bf16; see
// lib/kernels/CMakeLists.txt for the flags.
#if defined(__x86_64__)
#include "kernels/cpu/flat_loops.h"

namespace dslaunch::kernels {

const FlatKernels kAvx512Bf16Flat = kFlat;

}  // namespace dslaunch::kernels
#endif
