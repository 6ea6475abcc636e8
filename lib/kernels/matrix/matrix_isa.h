// The instruction sets that products and per-token kernels are compiled for: those of
// flat_optimizer.h, told apart by their dot products of bytes and by tiles. All of them give equal
// bits, but for kAmx in products with bf16 weights (multiply.h).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace dslaunch::kernels {

enum class MatrixIsa : uint8_t {
    kScalar,      // the reference, and what processors without the others run
    kAvx2,        // AVX2, FMA and F16C
    kAvx2Vnni,    // the same with AVX-VNNI
    kAvx512,      // AVX-512 F, VL, DQ, BW
    kAvx512Vnni,  // the same with AVX512-VNNI
    kAmx,         // the same with AVX512-BF16 and AMX's tiles of bf16
};
inline constexpr MatrixIsa kMatrixIsas[] = {MatrixIsa::kScalar,     MatrixIsa::kAvx2,
                                            MatrixIsa::kAvx2Vnni,   MatrixIsa::kAvx512,
                                            MatrixIsa::kAvx512Vnni, MatrixIsa::kAmx};

// True when this processor and this build can run ISA.
[[nodiscard]] bool matrix_isa_available(MatrixIsa isa);
// The best that is available within the Isa that is in use: DSL_ISA (flat_optimizer.h) bounds it.
// Throws as isa_in_use. Read once.
[[nodiscard]] MatrixIsa matrix_isa_in_use();
// "scalar", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "amx".
[[nodiscard]] std::string_view matrix_isa_name(MatrixIsa isa);

}  // namespace dslaunch::kernels
