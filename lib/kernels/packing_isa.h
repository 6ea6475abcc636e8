// The packing kernels of an instruction set.
#pragma once

#include "kernels/cpu/packing_kernels.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// REQUIRES: isa_available(ISA).
[[nodiscard]] const PackingKernels& packing_kernels_of(Isa isa);

}  // namespace dslaunch::kernels
