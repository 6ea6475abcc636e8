// Values in fewer bytes than fp32, on their way to and from a disk or between hosts: 16 bits an
// element, or 8 and 4 bits with one scale for each block of 256 (block-wise quantization, Dettmers
// et al. 2022); and the bytes of numbers sorted so that they compress. Packed bytes, and the values
// read from them, have the same bits on every instruction set. Threads: the caller's.
//
// Codes of optimizer states are drawn: a hash of a seed and the element's number decides between
// two codes, the nearer one more often in proportion, so that rounding is unbiased. Rounded to
// nearest, a variance that changes by a thousandth in a step would never change. Values that travel
// between hosts are rounded to the nearest code, of two to the even one; their 4 bits are drawn
// where the caller asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/state_packing.h"
#include "base/kinds/wire_packing.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// OUT: packed_bytes long, aligned to 4. A block with an element that is not finite becomes NaN
// whole (but under kBf16, element by element). REQUIRES: kUint8Root: values >= 0.
void pack_state(StatePacking packing, std::span<const float> values, std::span<std::byte> out,
                uint32_t seed, Isa isa = isa_in_use());
void unpack_state(StatePacking packing, std::span<const std::byte> packed, std::span<float> out,
                  Isa isa = isa_in_use());

struct WireRounding {
    bool drawn = false;  // codes of 4 bits are drawn by SEED
    uint32_t seed = 0;
};

// OUT: wire_bytes long, aligned to 4, for 16 bits to 2. In 8 and 4 bits a block with a value that
// is not finite becomes NaN whole. REQUIRES: PACKING is not kNone.
void pack_for_wire(WirePacking packing, std::span<const float> values, std::span<std::byte> out,
                   const WireRounding& rounding = {}, Isa isa = isa_in_use());
void unpack_from_wire(WirePacking packing, std::span<const std::byte> packed, std::span<float> out,
                      Isa isa = isa_in_use());

// Sets out[i] = values[i] of DTYPE, kBF16 or kF16, exactly.
void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype,
               Isa isa = isa_in_use());

// Writes the first byte of every element, then the second of every one, and so on; and back.
// ELEMENT: 2 or 4 bytes. REQUIRES: equal lengths, a multiple of ELEMENT, aligned to it; no overlap.
void split_bytes(std::span<const std::byte> values, int64_t element, std::span<std::byte> out,
                 Isa isa = isa_in_use());
void join_bytes(std::span<const std::byte> planes, int64_t element, std::span<std::byte> out,
                Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
