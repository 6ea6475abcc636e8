// Optimizer states in fewer bytes than fp32, for their way to and from a disk: bf16, or 8 bits an
// element with one scale for each block of 256 (block-wise quantization, Dettmers et al. 2022), and
// the bytes of numbers sorted so that they compress. Rounding is drawn from a hash of a seed and
// the element's number, in proportion to what lies nearer, so that it is unbiased: rounded to
// nearest, a variance that changes by a thousandth in a step would never change. The same seed
// gives the same bits on every instruction set (isa_in_use, flat_optimizer.h). Threads: none of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/state_packing.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// OUT: packed_bytes long, aligned to 4. A block with an element that is not finite becomes NaN
// whole (but under kBf16, element by element). REQUIRES: kUint8Root: values >= 0.
void pack_state(StatePacking packing, std::span<const float> values, std::span<std::byte> out,
                uint32_t seed, Isa isa = isa_in_use());
void unpack_state(StatePacking packing, std::span<const std::byte> packed, std::span<float> out,
                  Isa isa = isa_in_use());

// The first byte of every element, then the second of every one, and so on; and back. ELEMENT: 2 or
// 4 bytes. REQUIRES: both are as long, a multiple of ELEMENT, aligned to it; no overlap.
void split_bytes(std::span<const std::byte> values, int64_t element, std::span<std::byte> out,
                 Isa isa = isa_in_use());
void join_bytes(std::span<const std::byte> planes, int64_t element, std::span<std::byte> out,
                Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
