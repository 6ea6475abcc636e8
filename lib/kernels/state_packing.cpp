#include "kernels/state_packing.h"

#include <cstring>

#include "base/check.h"
#include "kernels/packing_isa.h"

namespace dslaunch::kernels {

static_assert(kPackedBlockNumel == kernels::kPackedBlock);

const kernels::PackingKernels& packing_kernels_of(Isa isa) {
    DSL_CHECK(isa_available(isa), "this processor or build lacks {}", isa_name(isa));
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kernels::kAvx2Packing;
    if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) return kernels::kAvx512Packing;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return kernels::kNeonPacking;
#endif
    return kernels::kScalarPacking;
}

namespace {

void check_length(StatePacking packing, int64_t numel, size_t bytes) {
    DSL_CHECK(static_cast<int64_t>(bytes) == packed_bytes(packing, numel),
              "{} bytes for {} elements", bytes, numel);
}

// The elements of VALUES, of ELEMENT bytes each, that go to OUT.
int64_t checked_numel(std::span<const std::byte> values, int64_t element,
                      std::span<const std::byte> out) {
    DSL_CHECK((element == 2 || element == 4) && values.size() == out.size() &&
                  std::ssize(values) % element == 0,
              "{} bytes of {} each to {}", values.size(), element, out.size());
    return std::ssize(values) / element;
}

template <typename To, typename From>
To* as(From* bytes) {
    return reinterpret_cast<To*>(bytes);
}

}  // namespace

void pack_state(StatePacking packing, std::span<const float> values, std::span<std::byte> out,
                uint32_t seed, Isa isa) {
    const int64_t numel = std::ssize(values);
    check_length(packing, numel, out.size());
    const kernels::PackingKernels& kernel = packing_kernels_of(isa);
    std::byte* const codes = out.data() + packed_scale_bytes(numel);
    switch (packing) {
        case StatePacking::kNone:
            std::memcpy(out.data(), values.data(), out.size());
            return;
        case StatePacking::kBf16:
            return kernel.to_bf16(values.data(), as<uint16_t>(out.data()), numel, seed);
        case StatePacking::kInt8:
            return kernel.to_int8(values.data(), as<float>(out.data()), as<int8_t>(codes), numel,
                                  seed);
        case StatePacking::kUint8Root:
            return kernel.squares_to_uint8(values.data(), as<float>(out.data()), as<uint8_t>(codes),
                                           numel, seed);
    }
}

void unpack_state(StatePacking packing, std::span<const std::byte> packed, std::span<float> out,
                  Isa isa) {
    const int64_t numel = std::ssize(out);
    check_length(packing, numel, packed.size());
    const kernels::PackingKernels& kernel = packing_kernels_of(isa);
    const std::byte* const codes = packed.data() + packed_scale_bytes(numel);
    switch (packing) {
        case StatePacking::kNone:
            std::memcpy(out.data(), packed.data(), packed.size());
            return;
        case StatePacking::kBf16:
            return kernel.from_bf16(as<const uint16_t>(packed.data()), out.data(), numel);
        case StatePacking::kInt8:
            return kernel.from_int8(as<const float>(packed.data()), as<const int8_t>(codes),
                                    out.data(), numel);
        case StatePacking::kUint8Root:
            return kernel.squares_from_uint8(as<const float>(packed.data()),
                                             as<const uint8_t>(codes), out.data(), numel);
    }
}

void split_bytes(std::span<const std::byte> values, int64_t element, std::span<std::byte> out,
                 Isa isa) {
    const int64_t numel = checked_numel(values, element, out);
    auto* const planes = as<uint8_t>(out.data());
    if (element == 4)
        return packing_kernels_of(isa).split_4(as<const uint32_t>(values.data()), planes, numel);
    packing_kernels_of(isa).split_2(as<const uint16_t>(values.data()), planes, numel);
}

void join_bytes(std::span<const std::byte> planes, int64_t element, std::span<std::byte> out,
                Isa isa) {
    const int64_t numel = checked_numel(planes, element, out);
    const auto* const from = as<const uint8_t>(planes.data());
    if (element == 4) return packing_kernels_of(isa).join_4(from, as<uint32_t>(out.data()), numel);
    packing_kernels_of(isa).join_2(from, as<uint16_t>(out.data()), numel);
}

}  // namespace dslaunch::kernels
