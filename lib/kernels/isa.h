// The instruction sets that kernels are compiled for, and functions that tell which of them this
// processor has. All give equal bits, except kAmx in products with bf16 weights
// (matrix/multiply.h). Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace dslaunch::kernels {

// The instruction sets for updates, sums and packings. Later ones are better.
enum class Isa : uint8_t { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16 };
inline constexpr Isa kIsas[] = {Isa::kScalar, Isa::kNeon, Isa::kAvx2, Isa::kAvx512,
                                Isa::kAvx512Bf16};

// Returns the best instruction set that this processor and this build have.
[[nodiscard]] Isa best_isa();
// Returns the instruction set that the environment variable DSL_ISA names (isa_name), or best_isa()
// if it is not set. Throws Error{kSetup} if this processor or this build lacks the named one. The
// variable is read once.
[[nodiscard]] Isa isa_in_use();
inline constexpr const char* kIsaVariable = "DSL_ISA";
// Returns true when this processor and this build can run ISA.
[[nodiscard]] bool isa_available(Isa isa);
// Returns "scalar", "neon", "avx2", "avx512" or "avx512_bf16".
[[nodiscard]] std::string_view isa_name(Isa isa);

// The instruction sets for matrix products and for a decoder's work on a token. They are finer than
// Isa, because they also distinguish dot products of bytes and AMX tiles. Later ones are better.
enum class MatrixIsa : uint8_t {
    kScalar,      // the reference, used if no other set is available
    kNeon,        // every 64-bit ARM
    kNeonDot,     // NEON with dot products of bytes (ARMv8.2)
    kAvx2,        // AVX2, FMA and F16C
    kAvx2Vnni,    // kAvx2 with AVX-VNNI
    kAvx512,      // AVX-512 F, VL, DQ, BW
    kAvx512Vnni,  // kAvx512 with AVX512-VNNI
    kAmx,         // kAvx512Vnni with AVX512-BF16 and AMX's tiles of bf16
};
inline constexpr MatrixIsa kMatrixIsas[] = {
    MatrixIsa::kScalar,   MatrixIsa::kNeon,   MatrixIsa::kNeonDot,    MatrixIsa::kAvx2,
    MatrixIsa::kAvx2Vnni, MatrixIsa::kAvx512, MatrixIsa::kAvx512Vnni, MatrixIsa::kAmx};

// Returns true when this processor and this build can run ISA.
[[nodiscard]] bool matrix_isa_available(MatrixIsa isa);
// Returns the best available instruction set that isa_in_use() allows. Throws like isa_in_use().
// The result is computed once.
[[nodiscard]] MatrixIsa matrix_isa_in_use();
// Returns "scalar", "neon", "neon_dot", "avx2", "avx2_vnni", "avx512", "avx512_vnni" or "amx".
[[nodiscard]] std::string_view matrix_isa_name(MatrixIsa isa);

}  // namespace dslaunch::kernels
