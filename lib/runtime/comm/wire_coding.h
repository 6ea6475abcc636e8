// The formats in which values travel between hosts: as they are, or packed. Within a host they are
// never packed. Data path: step plan -> ZeRO state -> collectives -> host exchange. Value types.
#pragma once

#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/wire_packing.h"
#include "base/range.h"

namespace dslaunch::runtime {

// The coding of a reduction. Ranges of kEveryNode are not packed.
struct ReduceCoding {
    // With 8-bit and 4-bit packing, destinations must be given. With 16-bit packing they may be
    // left out: then sums are sent back in 16 bits too, and every host has rounded sums.
    WirePacking packing = WirePacking::kNone;
    // The seed for random rounding, the same on all ranks and different in each reduction. Used
    // only if `errors` is empty: otherwise values are rounded to nearest.
    uint32_t seed = 0;
    // The rounding errors of the values that this rank packs: they are added to the values that it
    // packs next. [sent_numel (ranks/node_ranges.h)] fp32, kept by the caller from one reduction to
    // the next. If empty, the errors are lost.
    std::span<float> errors = {};
    // With 16-bit packing: the ranges of the bucket that travel unpacked, in order and disjoint.
    std::span<const Range> exact = {};
    // With 16-bit packing: the factor by which a host's sums are multiplied before they are sent,
    // so that they stay in the range of fp16.
    float scale_before = 1.0F;
};

// The coding of a gather. Packed values are rounded on every host, the sender's own included, so
// that all have the same bits.
struct GatherCoding {
    WirePacking packing = WirePacking::kNone;
    DType dtype = DType::kF32;  // dtype of packed elements: kF32, kBF16 or kF16
};

}  // namespace dslaunch::runtime
