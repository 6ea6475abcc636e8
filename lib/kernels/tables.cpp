#include "kernels/tables.h"

#include "base/check.h"

namespace dslaunch::kernels {
namespace {

constexpr Kernels kScalarKernels{kScalarFlat, kScalarPacking, kScalarSigns};
#if defined(__x86_64__)
constexpr Kernels kAvx2Kernels{kAvx2Flat, kAvx2Packing, kAvx2Signs};
constexpr Kernels kAvx512Kernels{kAvx512Flat, kAvx512Packing, kAvx512Signs};
constexpr Kernels kAvx512Bf16Kernels{kAvx512Bf16Flat, kAvx512Packing, kAvx512Signs};
#elif defined(__aarch64__)
constexpr Kernels kNeonKernels{kNeonFlat, kNeonPacking, kNeonSigns};
#endif

}  // namespace

const Kernels& kernels_of(Isa isa) {
    DSL_CHECK(isa_available(isa), "this processor or this build does not support {}",
              isa_name(isa));
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kAvx2Kernels;
    if (isa == Isa::kAvx512) return kAvx512Kernels;
    if (isa == Isa::kAvx512Bf16) return kAvx512Bf16Kernels;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return kNeonKernels;
#endif
    return kScalarKernels;
}

}  // namespace dslaunch::kernels
