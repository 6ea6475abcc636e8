// The packing between hosts that `auto` chooses, by the rates of link and processor.
#include "job/run/packing_choice.h"

#include "support/catch.h"

namespace dslaunch::job {

TEST_CASE("auto packs where the link is slower than the packing, and not beside a fast one") {
    constexpr double kPacking = 1e9;  // elements/s, there and back
    // At 1 Gb/s an element of bf16 takes 16 ns, 8.1 ns in 8 bits and 1 ns to pack.
    const PackingCost slow = packing_cost(WirePacking::kInt8, 2, 0.125e9, kPacking);
    CHECK(slow.exact_ns == Approx(16.0));
    CHECK(slow.packed_ns == Approx(8 * 260.0 / 256 + 1));
    CHECK(slow.packs());
    // At 100 Gb/s the packing takes longer than the bytes that it saves.
    CHECK_FALSE(packing_cost(WirePacking::kInt8, 2, 12.5e9, kPacking).packs());
    CHECK(packing_cost(WirePacking::kInt4, 4, 1.25e9, kPacking).packs());
    CHECK_FALSE(packing_cost(WirePacking::kInt4, 4, 12.5e9, kPacking).packs());
    // Packing that saves less than a tenth is not worth the rounding.
    const PackingCost close = packing_cost(WirePacking::kInt8, 2, 1e9, 1 / 0.85e-9);
    CHECK(close.packed_ns < close.exact_ns);
    CHECK_FALSE(close.packs());
}

}  // namespace dslaunch::job
