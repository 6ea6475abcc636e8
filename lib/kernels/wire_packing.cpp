#include "kernels/wire_packing.h"

#include "base/check.h"
#include "kernels/cpu/packing_kernels.h"
#include "kernels/packing_isa.h"
#include "kernels/update_arguments.h"

namespace dslaunch::kernels {
namespace {

static_assert(kWireBlockNumel == kernels::kPackedBlock);

// Bytes of the scales before the codes.
size_t checked_scales(WirePacking packing, int64_t numel, size_t bytes) {
    DSL_CHECK(packing != WirePacking::kNone, "values that travel as they are are not packed");
    DSL_CHECK(static_cast<int64_t>(bytes) == wire_bytes(packing, numel, 0), "{} bytes for {}",
              bytes, numel);
    if (is_half(packing)) return 0;
    return static_cast<size_t>(round_up(numel, kWireBlockNumel) / kWireBlockNumel * 4);
}

DType half_of(WirePacking packing) {
    return packing == WirePacking::kBf16 ? DType::kBF16 : DType::kF16;
}

}  // namespace

void pack_for_wire(WirePacking packing, std::span<const float> values, std::span<std::byte> out,
                   const WireRounding& rounding, Isa isa) {
    const int64_t numel = std::ssize(values);
    std::byte* const codes = out.data() + checked_scales(packing, numel, out.size());
    auto* const scales = reinterpret_cast<float*>(out.data());
    if (is_half(packing))
        return to_half(values.data(), reinterpret_cast<uint16_t*>(codes), numel, half_of(packing),
                       isa);
    const PackingKernels& kernels = packing_kernels_of(isa);
    if (packing == WirePacking::kInt8)
        return kernels.to_nearest_int8(values.data(), scales, reinterpret_cast<int8_t*>(codes),
                                       numel);
    auto* const pairs = reinterpret_cast<uint8_t*>(codes);
    if (rounding.drawn)
        return kernels.to_drawn_int4(values.data(), scales, pairs, numel, rounding.seed);
    kernels.to_nearest_int4(values.data(), scales, pairs, numel);
}

void unpack_from_wire(WirePacking packing, std::span<const std::byte> packed, std::span<float> out,
                      Isa isa) {
    const int64_t numel = std::ssize(out);
    const std::byte* const codes = packed.data() + checked_scales(packing, numel, packed.size());
    if (is_half(packing))
        return from_half(reinterpret_cast<const uint16_t*>(codes), out.data(), numel,
                         half_of(packing), isa);
    const auto* const scales = reinterpret_cast<const float*>(packed.data());
    const PackingKernels& kernels = packing_kernels_of(isa);
    if (packing == WirePacking::kInt8)
        return kernels.from_int8(scales, reinterpret_cast<const int8_t*>(codes), out.data(), numel);
    kernels.from_int4(scales, reinterpret_cast<const uint8_t*>(codes), out.data(), numel);
}

void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype, Isa isa) {
    const PackingKernels& kernels = packing_kernels_of(isa);
    (half_kind(dtype) == NumberKind::kBf16 ? kernels.from_bf16 : kernels.from_fp16)(values, out,
                                                                                    numel);
}

}  // namespace dslaunch::kernels
