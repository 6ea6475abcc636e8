#include "kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "base/error.h"

namespace dslaunch::kernels {
namespace {

constexpr std::string_view kNames[] = {"scalar", "neon", "avx2", "avx512", "avx512_bf16"};

struct MatrixRow {
    std::string_view name;
    Isa least;  // lowest Isa of a processor with this instruction set
};
constexpr MatrixRow kMatrixRows[] = {{"scalar", Isa::kScalar},      {"neon", Isa::kNeon},
                                     {"neon_dot", Isa::kNeon},      {"avx2", Isa::kAvx2},
                                     {"avx2_vnni", Isa::kAvx2},     {"avx512", Isa::kAvx512},
                                     {"avx512_vnni", Isa::kAvx512}, {"amx", Isa::kAvx512Bf16}};

#if defined(__x86_64__)
struct CpuidAnswer {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Asks the processor directly about features whose names __builtin_cpu_supports of GCC 12 or clang
// 14 does not know.
CpuidAnswer ask_processor(unsigned leaf, unsigned part) {
    CpuidAnswer answer;
    __get_cpuid_count(leaf, part, &answer.eax, &answer.ebx, &answer.ecx, &answer.edx);
    return answer;
}

// Returns true if the processor has AMX and Linux lets this process use its tiles. Linux saves the
// tiles' registers only for processes that have requested it.
bool has_amx() {
    constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;
    const unsigned features = ask_processor(7, 0).edx;
    if ((features & kAmxBf16) == 0 || (features & kAmxTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

bool look_for(Isa isa) {
#if defined(__x86_64__)
    const bool f16c = (ask_processor(1, 0).ecx & bit_F16C) != 0;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                        f16c;
    if (isa == Isa::kAvx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
    if (isa == Isa::kAvx512) return avx512;
    if (isa == Isa::kAvx512Bf16) return avx512 && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return true;
#endif
    return isa == Isa::kScalar;
}

bool look_for(MatrixIsa isa) {
    if (!isa_available(kMatrixRows[static_cast<size_t>(isa)].least)) return false;
#if defined(__x86_64__)
    constexpr unsigned kAvxVnni = 1U << 4;
    if (isa == MatrixIsa::kAvx2Vnni) return (ask_processor(7, 1).eax & kAvxVnni) != 0;
    if (isa >= MatrixIsa::kAvx512Vnni && !__builtin_cpu_supports("avx512vnni")) return false;
    return isa != MatrixIsa::kAmx || has_amx();
#elif defined(__aarch64__)
    return isa != MatrixIsa::kNeonDot || (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return true;
#endif
}

// The results of look_for() for all instruction sets. They are computed only once, because a
// virtual machine may take 10 µs to report the features of its processor.
template <typename Set, size_t kCount>
struct Availability {
    bool of[kCount];

    explicit Availability(const Set (&all)[kCount]) {
        for (const Set one : all) of[static_cast<size_t>(one)] = look_for(one);
    }
};

}  // namespace

bool isa_available(Isa isa) {
    static const Availability available(kIsas);
    return available.of[static_cast<size_t>(isa)];
}

Isa best_isa() {
    return *std::find_if(std::rbegin(kIsas), std::rend(kIsas), isa_available);
}

Isa isa_in_use() {
    static const Isa isa = [] {
        const char* const name = std::getenv(kIsaVariable);
        if (name == nullptr) return best_isa();
        std::string known;
        for (auto one = std::rbegin(kIsas); one != std::rend(kIsas); ++one) {
            if (!isa_available(*one)) continue;
            if (isa_name(*one) == name) return *one;
            known += fmt::format(" {}", isa_name(*one));
        }
        fail(ExitCode::kSetup,
             "{}={}: this processor or this build does not support that instruction set; supported "
             "are:{}",
             kIsaVariable, name, known);
    }();
    return isa;
}

std::string_view isa_name(Isa isa) {
    return kNames[static_cast<size_t>(isa)];
}

bool matrix_isa_available(MatrixIsa isa) {
    static const Availability available(kMatrixIsas);
    return available.of[static_cast<size_t>(isa)];
}

MatrixIsa matrix_isa_in_use() {
    static const MatrixIsa isa =
        *std::find_if(std::rbegin(kMatrixIsas), std::rend(kMatrixIsas), [](MatrixIsa one) {
            return kMatrixRows[static_cast<size_t>(one)].least <= isa_in_use() &&
                   matrix_isa_available(one);
        });
    return isa;
}

std::string_view matrix_isa_name(MatrixIsa isa) {
    return kMatrixRows[static_cast<size_t>(isa)].name;
}

}  // namespace dslaunch::kernels
