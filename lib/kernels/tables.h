// The kernels of each instruction set for updates, packings and signs. Used only inside this
// library.
#pragma once

#include "kernels/cpu/kernel_tables.h"
#include "kernels/isa.h"

namespace dslaunch::kernels {

// The tables of one instruction set.
struct Kernels {
    const FlatKernels& flat;
    const PackingKernels& packing;
    const SignKernels& signs;
};

// REQUIRES: ISA is available.
[[nodiscard]] const Kernels& kernels_of(Isa isa);

}  // namespace dslaunch::kernels
