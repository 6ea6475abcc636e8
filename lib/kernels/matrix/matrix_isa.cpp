#include "kernels/matrix/matrix_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <iterator>

#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {
namespace {

#if defined(__x86_64__)
// The processor itself is asked: GCC 12's __builtin_cpu_supports does not know the name.
bool has_avx_vnni() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kAvxVnni = 1U << 4;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
}

// The system must let the process have tiles: their registers are not saved unless it asks.
bool has_amx() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

// True when BOUND, which DSL_ISA may have named, lets ISA run.
bool within(MatrixIsa isa, Isa bound) {
    switch (isa) {
        case MatrixIsa::kScalar:
            return true;
        case MatrixIsa::kAvx2:
        case MatrixIsa::kAvx2Vnni:
            return bound == Isa::kAvx2 || bound == Isa::kAvx512 || bound == Isa::kAvx512Bf16;
        case MatrixIsa::kAvx512:
        case MatrixIsa::kAvx512Vnni:
            return bound == Isa::kAvx512 || bound == Isa::kAvx512Bf16;
        case MatrixIsa::kAmx:
            return bound == Isa::kAvx512Bf16;
    }
    return false;
}

bool look_for(MatrixIsa isa) {
#if defined(__x86_64__)
    switch (isa) {
        case MatrixIsa::kScalar:
            return true;
        case MatrixIsa::kAvx2:
            return isa_available(Isa::kAvx2);
        case MatrixIsa::kAvx2Vnni:
            return isa_available(Isa::kAvx2) && has_avx_vnni();
        case MatrixIsa::kAvx512:
            return isa_available(Isa::kAvx512);
        case MatrixIsa::kAvx512Vnni:
            return isa_available(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni");
        case MatrixIsa::kAmx:
            return isa_available(Isa::kAvx512Bf16) && look_for(MatrixIsa::kAvx512Vnni) && has_amx();
    }
#endif
    return isa == MatrixIsa::kScalar;
}

// Asked once: a virtual machine may take 10 µs to say what its processor is.
struct Availability {
    bool of[std::size(kMatrixIsas)];

    Availability() {
        for (const MatrixIsa isa : kMatrixIsas) of[static_cast<size_t>(isa)] = look_for(isa);
    }
};

}  // namespace

bool matrix_isa_available(MatrixIsa isa) {
    static const Availability available;
    return isa <= MatrixIsa::kAmx && available.of[static_cast<size_t>(isa)];
}

MatrixIsa matrix_isa_in_use() {
    static const MatrixIsa isa = [] {
        const Isa bound = isa_in_use();
        MatrixIsa best = MatrixIsa::kScalar;
        for (const MatrixIsa one : kMatrixIsas)
            if (within(one, bound) && matrix_isa_available(one)) best = one;
        return best;
    }();
    return isa;
}

std::string_view matrix_isa_name(MatrixIsa isa) {
    switch (isa) {
        case MatrixIsa::kScalar:
            return "scalar";
        case MatrixIsa::kAvx2:
            return "avx2";
        case MatrixIsa::kAvx2Vnni:
            return "avx2_vnni";
        case MatrixIsa::kAvx512:
            return "avx512";
        case MatrixIsa::kAvx512Vnni:
            return "avx512_vnni";
        case MatrixIsa::kAmx:
            return "amx";
    }
    return "unknown";
}

}  // namespace dslaunch::kernels
