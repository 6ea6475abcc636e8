// Values in fewer bytes than fp32, for disks and for transfers between hosts: 16 bits per element,
// or 8 or 4 bits with one scale for each block of 256 elements (block-wise quantization, Dettmers
// et al. 2022). Also reorders the bytes of numbers so that they compress better. Packed bytes, and
// the values read from them, have the same bits on every instruction set. Threads: the caller's.
//
// Codes of optimizer states use stochastic rounding: a hash of a seed and the element's number
// chooses one of the two neighbouring codes. The nearer code has the higher probability, so that
// rounding is unbiased. With rounding to nearest, small changes of a variance (a thousandth per
// step) would be lost. Values that travel between hosts are rounded to the nearest code, ties to
// even. Their 4-bit codes use stochastic rounding if the caller asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/state_packing.h"
#include "base/kinds/wire_packing.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// Packs VALUES into OUT, which has packed_bytes bytes and is aligned to 4 bytes. If an element of a
// block is not finite, the whole block becomes NaN, except in kBf16, where the other elements are
// not affected. REQUIRES: in kUint8Root, values >= 0.
void pack_state(StatePacking packing, std::span<const float> values, std::span<std::byte> out,
                uint32_t seed, Isa isa = isa_in_use());
void unpack_state(StatePacking packing, std::span<const std::byte> packed, std::span<float> out,
                  Isa isa = isa_in_use());

// The rounding of values to 4-bit codes; other packings ignore it.
struct WireRounding {
    bool drawn = false;  // 4-bit codes use stochastic rounding with SEED
    uint32_t seed = 0;
};

// Packs VALUES into OUT, which has wire_bytes bytes and is aligned to 4 bytes, or to 2 bytes for
// 16-bit packings. With 8 or 4 bits, a block with a value that is not finite becomes NaN as a
// whole. REQUIRES: PACKING is not kNone.
void pack_for_wire(WirePacking packing, std::span<const float> values, std::span<std::byte> out,
                   const WireRounding& rounding = {}, Isa isa = isa_in_use());
void unpack_from_wire(WirePacking packing, std::span<const std::byte> packed, std::span<float> out,
                      Isa isa = isa_in_use());

// Sets out[i] = values[i], where VALUES are of DTYPE, kBF16 or kF16. The conversion is exact.
void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype,
               Isa isa = isa_in_use());

// Writes the first byte of every element, then the second byte of every element, and so on;
// join_bytes does the reverse. ELEMENT is 2 or 4 bytes. REQUIRES: equal lengths that are a multiple
// of ELEMENT; arrays aligned to ELEMENT; no overlap.
void split_bytes(std::span<const std::byte> values, int64_t element, std::span<std::byte> out,
                 Isa isa = isa_in_use());
void join_bytes(std::span<const std::byte> planes, int64_t element, std::span<std::byte> out,
                Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
