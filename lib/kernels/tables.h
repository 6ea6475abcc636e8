// The kernels of each instruction set for updates, packings and signs. For this library alone.
#pragma once

#include "kernels/cpu/kernel_tables.h"
#include "kernels/isa.h"

namespace dslaunch::kernels {

struct Kernels {
    const FlatKernels& flat;
    const PackingKernels& packing;
    const SignKernels& signs;
};

// REQUIRES: ISA is available.
[[nodiscard]] const Kernels& kernels_of(Isa isa);

}  // namespace dslaunch::kernels
