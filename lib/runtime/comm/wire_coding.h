// The ways that values travel between hosts: as they are, or packed. Within a host they travel as
// they are. Data path: step plan -> ZeRO state -> collectives -> host exchange. Value types.
#pragma once

#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/wire_packing.h"
#include "base/range.h"

namespace dslaunch::runtime {

// The coding of a reduction. Values that every node needs, by the destinations, travel as they are.
struct ReduceCoding {
    // In 8 and 4 bits destinations are given. In 16 bits they may be left out: then sums travel
    // back in 16 bits too, and every host has them rounded.
    WirePacking packing = WirePacking::kNone;
    // The seed for drawing codes, the same on all ranks and another one each time. Only without
    // `errors`: with them, rounding is to nearest.
    uint32_t seed = 0;
    // The rounding errors of the values that this rank packs, added to the next ones:
    // [sent_numel (ranks/node_ranges.h)] fp32, kept by the caller from one reduction to the next.
    // Empty: they are lost.
    std::span<float> errors = {};
    // In 16 bits: the bucket's ranges, in order and apart, that travel as they are.
    std::span<const Range> exact = {};
    // In 16 bits: sums of a host are multiplied by it before they travel, so that they stay in the
    // range of fp16.
    float scale_before = 1.0F;
};

// The coding of a gather. Packed values arrive rounded on every host, the sender's own included, so
// that all have the same bits.
struct GatherCoding {
    WirePacking packing = WirePacking::kNone;
    DType dtype = DType::kF32;  // the elements', if they are packed: kF32, kBF16 or kF16
};

}  // namespace dslaunch::runtime
