// Packings that shorten the values sent between hosts; the kernels are in lib/kernels/packing.h.
// The plan uses this header to count bytes. Source: ZeRO++ (Wang et al. 2023, arXiv:2306.10209),
// block-wise quantization of weights and gradients.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace dslaunch {

// The formats in which values are sent to other ranks. The errors below arise each time a value is
// packed.
enum class WirePacking : uint8_t {
    kNone,  // unpacked
    kInt8,  // error at most 1/254 of the block's largest value
    kInt4,  // error at most 1/14 of the block's largest value, or less than 1/7 if rounded randomly
    kBf16,  // rounded to the nearest bf16: error at most 2^-8 of the value
    kF16    // rounded to the nearest fp16: error at most 2^-11 of the value, or 2^-25 if it is near
            // 0; infinite from 65520 on
};

// Returns true for bf16 and fp16. A value that is already rounded to one of these types does not
// change when it is rounded again.
[[nodiscard]] constexpr bool is_half(WirePacking packing) {
    return packing == WirePacking::kBf16 || packing == WirePacking::kF16;
}

// The number of elements that share a scale.
inline constexpr int64_t kWireBlockNumel = 256;

// Returns the size of NUMEL elements on the wire. ELEMENT_BYTES is the size of an unpacked element.
// kInt8 and kInt4 store one fp32 scale for each block, then the codes. If a tensor is divided into
// parts of whole blocks, the sizes of the parts add up to the size of the tensor.
[[nodiscard]] constexpr int64_t wire_bytes(WirePacking packing, int64_t numel,
                                           int64_t element_bytes) {
    if (packing == WirePacking::kNone) return numel * element_bytes;
    if (is_half(packing)) return numel * 2;
    const int64_t scales = round_up(numel, kWireBlockNumel) / kWireBlockNumel * 4;
    return scales + (packing == WirePacking::kInt8 ? numel : (numel + 1) / 2);
}

}  // namespace dslaunch
