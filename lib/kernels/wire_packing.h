// Values in 16, 8 or 4 bits for their way between hosts, 8 and 4 with one scale for each block of
// 256, and 16-bit values as fp32, which the packings take. Packed bytes and what they are read as
// are the same bits on every instruction set (isa_in_use, flat_optimizer.h). Threads: none of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/wire_packing.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::kernels {

// How a number between two codes is rounded: to the nearer one, or to one that is drawn from a hash
// of the seed and the number's place, in proportion to what lies nearer, so that it is unbiased.
// Only 4 bits are drawn.
struct WireRounding {
    bool drawn = false;
    uint32_t seed = 0;
};

// OUT: wire_bytes long, aligned to 4, for 16 bits to 2. In 8 and 4 bits a block with a value that
// is not finite becomes NaN whole. REQUIRES: PACKING is not kNone.
void pack_for_wire(WirePacking packing, std::span<const float> values, std::span<std::byte> out,
                   const WireRounding& rounding = {}, Isa isa = isa_in_use());
void unpack_from_wire(WirePacking packing, std::span<const std::byte> packed, std::span<float> out,
                      Isa isa = isa_in_use());

// out[i] = values[i] of DTYPE, kBF16 or kF16, exactly.
void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype,
               Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
