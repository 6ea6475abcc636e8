// A packing of values that travel between hosts in fewer bits; the kernels are in
// lib/kernels/packing.h. The plan knows it to count the bytes. Source: ZeRO++ (Wang et al. 2023,
// arXiv:2306.10209), block-wise quantization of weights and gradients.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace dslaunch {

enum class WirePacking : uint8_t {
    kNone,  // as they are
    kInt8,  // off by at most 1/254 of the largest of their block
    kInt4,  // off by at most 1/14 of the largest of their block, or less than 1/7 if drawn
    kBf16,  // to the nearest bf16: off by at most 2^-8 of the value
    kF16    // to the nearest fp16: off by at most 2^-11 of the value, or 2^-25 of near nothing;
            // infinite from 65520 on
};

// Returns true for the packings without blocks. Rounded values stay the same when they are rounded
// again.
[[nodiscard]] constexpr bool is_half(WirePacking packing) {
    return packing == WirePacking::kBf16 || packing == WirePacking::kF16;
}

// Elements that share a scale.
inline constexpr int64_t kWireBlockNumel = 256;

// Returns the bytes of NUMEL elements, of ELEMENT_BYTES each if they travel unpacked. In 8 and 4
// bits: one fp32 scale a block, then the codes. It adds up over parts that are whole blocks.
[[nodiscard]] constexpr int64_t wire_bytes(WirePacking packing, int64_t numel,
                                           int64_t element_bytes) {
    if (packing == WirePacking::kNone) return numel * element_bytes;
    if (is_half(packing)) return numel * 2;
    const int64_t scales = round_up(numel, kWireBlockNumel) / kWireBlockNumel * 4;
    return scales + (packing == WirePacking::kInt8 ? numel : (numel + 1) / 2);
}

}  // namespace dslaunch
