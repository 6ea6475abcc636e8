#include "kernels/packing.h"

#include <cstring>

#include "base/check.h"
#include "kernels/tables.h"
#include "kernels/update_arguments.h"

namespace dslaunch::kernels {

static_assert(kPackedBlockNumel == kPackedBlock && kWireBlockNumel == kPackedBlock);

namespace {

template <typename To, typename From>
To* as(From* bytes) {
    return reinterpret_cast<To*>(bytes);
}

void check_length(StatePacking packing, int64_t numel, size_t bytes) {
    DSL_CHECK(static_cast<int64_t>(bytes) == packed_bytes(packing, numel),
              "{} bytes do not match {} elements", bytes, numel);
}

// Checks the length of packed data. Returns how many bytes of scales precede the codes.
size_t checked_scales(WirePacking packing, int64_t numel, size_t bytes) {
    DSL_CHECK(packing != WirePacking::kNone, "cannot pack values: no packing is chosen");
    DSL_CHECK(static_cast<int64_t>(bytes) == wire_bytes(packing, numel, 0),
              "{} bytes do not match {} elements", bytes, numel);
    if (is_half(packing)) return 0;
    return static_cast<size_t>(round_up(numel, kWireBlockNumel) / kWireBlockNumel * 4);
}

DType half_of(WirePacking packing) {
    return packing == WirePacking::kBf16 ? DType::kBF16 : DType::kF16;
}

// Checks the lengths of both arrays. Returns the number of elements; each has ELEMENT bytes.
int64_t checked_numel(std::span<const std::byte> values, int64_t element,
                      std::span<const std::byte> out) {
    DSL_CHECK((element == 2 || element == 4) && values.size() == out.size() &&
                  std::ssize(values) % element == 0,
              "{} bytes of values of {} bytes each do not match {} bytes of output", values.size(),
              element, out.size());
    return std::ssize(values) / element;
}

}  // namespace

void pack_state(StatePacking packing, std::span<const float> values, std::span<std::byte> out,
                uint32_t seed, Isa isa) {
    const int64_t numel = std::ssize(values);
    check_length(packing, numel, out.size());
    const PackingKernels& kernels = kernels_of(isa).packing;
    auto* const scales = as<float>(out.data());
    std::byte* const codes = out.data() + packed_scale_bytes(numel);
    switch (packing) {
        case StatePacking::kNone:
            std::memcpy(out.data(), values.data(), out.size());
            return;
        case StatePacking::kBf16:
            return kernels.to_bf16(values.data(), as<uint16_t>(out.data()), numel, seed);
        case StatePacking::kInt8:
            return kernels.to_int8(values.data(), scales, as<int8_t>(codes), numel, &seed);
        case StatePacking::kUint8Root:
            return kernels.squares_to_uint8(values.data(), scales, as<uint8_t>(codes), numel, seed);
    }
}

void unpack_state(StatePacking packing, std::span<const std::byte> packed, std::span<float> out,
                  Isa isa) {
    const int64_t numel = std::ssize(out);
    check_length(packing, numel, packed.size());
    const PackingKernels& kernels = kernels_of(isa).packing;
    const auto* const scales = as<const float>(packed.data());
    const std::byte* const codes = packed.data() + packed_scale_bytes(numel);
    switch (packing) {
        case StatePacking::kNone:
            std::memcpy(out.data(), packed.data(), packed.size());
            return;
        case StatePacking::kBf16:
            return kernels.from_bf16(as<const uint16_t>(packed.data()), out.data(), numel);
        case StatePacking::kInt8:
            return kernels.from_int8(scales, as<const int8_t>(codes), out.data(), numel);
        case StatePacking::kUint8Root:
            return kernels.squares_from_uint8(scales, as<const uint8_t>(codes), out.data(), numel);
    }
}

void pack_for_wire(WirePacking packing, std::span<const float> values, std::span<std::byte> out,
                   const WireRounding& rounding, Isa isa) {
    const int64_t numel = std::ssize(values);
    std::byte* const codes = out.data() + checked_scales(packing, numel, out.size());
    auto* const scales = as<float>(out.data());
    if (is_half(packing))
        return to_half(values.data(), as<uint16_t>(codes), numel, half_of(packing), isa);
    const PackingKernels& kernels = kernels_of(isa).packing;
    if (packing == WirePacking::kInt8)
        return kernels.to_int8(values.data(), scales, as<int8_t>(codes), numel, nullptr);
    kernels.to_int4(values.data(), scales, as<uint8_t>(codes), numel,
                    rounding.drawn ? &rounding.seed : nullptr);
}

void unpack_from_wire(WirePacking packing, std::span<const std::byte> packed, std::span<float> out,
                      Isa isa) {
    const int64_t numel = std::ssize(out);
    const std::byte* const codes = packed.data() + checked_scales(packing, numel, packed.size());
    if (is_half(packing))
        return from_half(as<const uint16_t>(codes), out.data(), numel, half_of(packing), isa);
    const auto* const scales = as<const float>(packed.data());
    const PackingKernels& kernels = kernels_of(isa).packing;
    if (packing == WirePacking::kInt8)
        return kernels.from_int8(scales, as<const int8_t>(codes), out.data(), numel);
    kernels.from_int4(scales, as<const uint8_t>(codes), out.data(), numel);
}

void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype, Isa isa) {
    const PackingKernels& kernels = kernels_of(isa).packing;
    (half_kind(dtype) == NumberKind::kBf16 ? kernels.from_bf16 : kernels.from_fp16)(values, out,
                                                                                    numel);
}

void split_bytes(std::span<const std::byte> values, int64_t element, std::span<std::byte> out,
                 Isa isa) {
    const int64_t numel = checked_numel(values, element, out);
    const PackingKernels& kernels = kernels_of(isa).packing;
    auto* const planes = as<uint8_t>(out.data());
    if (element == 4) return kernels.split_4(as<const uint32_t>(values.data()), planes, numel);
    kernels.split_2(as<const uint16_t>(values.data()), planes, numel);
}

void join_bytes(std::span<const std::byte> planes, int64_t element, std::span<std::byte> out,
                Isa isa) {
    const int64_t numel = checked_numel(planes, element, out);
    const PackingKernels& kernels = kernels_of(isa).packing;
    const auto* const from = as<const uint8_t>(planes.data());
    if (element == 4) return kernels.join_4(from, as<uint32_t>(out.data()), numel);
    kernels.join_2(from, as<uint16_t>(out.data()), numel);
}

}  // namespace dslaunch::kernels
