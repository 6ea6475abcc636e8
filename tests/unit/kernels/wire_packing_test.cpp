// Values in 8 and 4 bits between hosts, on every instruction set that this processor has.
#include "kernels/packing.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernel_numbers.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

constexpr WirePacking kWirePackings[] = {WirePacking::kInt8, WirePacking::kInt4};
constexpr int64_t kWireLengths[] = {1, 2, 15, 255, 256, 257, 511, 1000, 4096, 10'001};

std::vector<float> drawn_values(int64_t numel, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values;
    for (int64_t i = 0; i < numel; ++i)
        values.push_back(std::ldexp(normal(random), -static_cast<int>(random() % 12)));
    return values;
}

std::vector<std::byte> on_wire(WirePacking packing, const std::vector<float>& values,
                               const WireRounding& rounding = {}, Isa isa = Isa::kScalar) {
    std::vector<std::byte> out(static_cast<size_t>(wire_bytes(packing, std::ssize(values), 4)));
    pack_for_wire(packing, values, out, rounding, isa);
    return out;
}

std::vector<float> arrived(WirePacking packing, const std::vector<std::byte>& bytes, size_t numel,
                           Isa isa = Isa::kScalar) {
    std::vector<float> out(numel);
    unpack_from_wire(packing, bytes, out, isa);
    return out;
}

// Returns the number of elements with an error above half a code, or above a whole code if codes
// are drawn.
int64_t too_far(WirePacking packing, const std::vector<float>& values,
                const std::vector<float>& back, bool drawn) {
    const float codes = packing == WirePacking::kInt8 ? 127.0F : 7.0F;
    int64_t wrong = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const float largest = largest_of_block(values, i, kWireBlockNumel);
        // Quotient and product are rounded too: this adds at most 2^-22 of the largest.
        const float allowed = largest * ((drawn ? 1.0F : 0.5F) / codes + 0x1p-22F);
        wrong += std::fabs(back[i] - values[i]) <= allowed ? 0 : 1;
    }
    return wrong;
}

}  // namespace

TEST_CASE("what travels between hosts has the scalar reference's bits on every instruction set") {
    for (const WirePacking packing : kWirePackings)
        for (const int64_t numel : kWireLengths)
            for (const WireRounding& rounding :
                 {WireRounding{}, WireRounding{true, 7}, WireRounding{true, 0xFFFFFFFFU}}) {
                std::vector<float> values = drawn_values(numel, rounding.seed + 1);
                if (numel > 600) {
                    std::fill_n(values.begin(), 256, 0.0F);
                    values[3] = std::numeric_limits<float>::denorm_min();
                    values[300] = std::numeric_limits<float>::infinity();
                }
                const std::vector<std::byte> expected = on_wire(packing, values, rounding);
                const std::vector<float> back = arrived(packing, expected, values.size());
                for (const Isa isa : available()) {
                    INFO(isa_name(isa) << " packing " << static_cast<int>(packing) << " of "
                                       << numel << ", drawn " << rounding.drawn);
                    CHECK(on_wire(packing, values, rounding, isa) == expected);
                    CHECK(same(arrived(packing, expected, values.size(), isa), back));
                }
            }
}

TEST_CASE("a packed element takes a quarter or an eighth of fp32, and a scale for each 256") {
    CHECK(wire_bytes(WirePacking::kNone, 1000, 4) == 4000);
    CHECK(wire_bytes(WirePacking::kNone, 1000, 2) == 2000);
    CHECK(wire_bytes(WirePacking::kInt8, 1024, 2) == 1024 + 4 * 4);
    CHECK(wire_bytes(WirePacking::kInt8, 1000, 4) == 1000 + 4 * 4);
    CHECK(wire_bytes(WirePacking::kInt4, 1024, 4) == 512 + 4 * 4);
    CHECK(wire_bytes(WirePacking::kInt4, 257, 4) == 129 + 2 * 4);
    CHECK(wire_bytes(WirePacking::kInt8, 0, 4) == 0);
}

TEST_CASE("no element travels further off than half a code of its block, or a code if drawn") {
    for (const WirePacking packing : kWirePackings)
        for (const unsigned seed : {1U, 2U, 3U}) {
            std::vector<float> values = drawn_values(10'001, seed);
            values[0] = 4.0F * largest_of_block(values, 0, kWireBlockNumel);
            values[1] = 0.5F * values[0];  // between two codes
            std::vector<float> back = arrived(packing, on_wire(packing, values), values.size());
            CHECK(too_far(packing, values, back, false) == 0);
            std::vector<float> negated = values;
            for (float& value : negated) value = -value;
            negated = arrived(packing, on_wire(packing, negated), values.size());
            for (float& value : negated) value = -value;
            CHECK(negated == back);
            // A bound of a third of a code is broken by about a third of the elements.
            std::vector<float> doubled = back;
            for (size_t i = 0; i < values.size(); ++i)
                doubled[i] = values[i] + 1.5F * (back[i] - values[i]);
            CHECK(too_far(packing, values, doubled, false) > 100);
            if (packing == WirePacking::kInt8) continue;
            const std::vector<float> drawn =
                arrived(packing, on_wire(packing, values, {true, seed}), values.size());
            CHECK(too_far(packing, values, drawn, true) == 0);
            CHECK(too_far(packing, values, drawn, false) > 100);
        }
}

TEST_CASE("drawn codes of 4 bits are unbiased, nearest ones are not") {
    const std::vector<float> values = {1.0F, 0.03F, -0.05F, 0.31F, -0.7F};
    constexpr int kDraws = 20'000;
    std::vector<double> sums(values.size(), 0.0);
    for (int draw = 0; draw < kDraws; ++draw) {
        const auto seed = static_cast<uint32_t>(draw) * 2654435761U;
        const std::vector<float> back = arrived(
            WirePacking::kInt4, on_wire(WirePacking::kInt4, values, {true, seed}), values.size());
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += back[i];
    }
    // A draw has an error below 1/7. The standard error of the mean is 1/14/sqrt(draws) = 5.1e-4;
    // the bound is five times that.
    for (size_t i = 0; i < sums.size(); ++i)
        CHECK(std::fabs(sums[i] / kDraws - values[i]) < 2.6e-3);
    const std::vector<float> nearest =
        arrived(WirePacking::kInt4, on_wire(WirePacking::kInt4, values), values.size());
    CHECK(nearest[1] == 0.0F);
    CHECK(nearest[0] == 1.0F);
}

TEST_CASE("a block with what is not finite arrives as no number, and no other block") {
    for (const WirePacking packing : kWirePackings)
        for (const float bad :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> values = drawn_values(600, 5);
            values[300] = bad;
            const std::vector<float> back =
                arrived(packing, on_wire(packing, values), values.size());
            CHECK_FALSE(std::isfinite(back[300]));
            CHECK_FALSE(std::isfinite(back[511]));
            CHECK(std::isfinite(back[255]));
            CHECK(std::isfinite(back[512]));
        }
    const std::vector<float> zeros(300, 0.0F);
    for (const WirePacking packing : kWirePackings)
        CHECK(arrived(packing, on_wire(packing, zeros), zeros.size()) == zeros);
}

TEST_CASE("16-bit values are widened exactly") {
    std::vector<uint16_t> halves;
    for (int bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<uint16_t>(bits));
    for (const DType dtype : {DType::kBF16, DType::kF16})
        for (const Isa isa : available()) {
            std::vector<float> wide(halves.size());
            from_half(halves.data(), wide.data(), std::ssize(halves), dtype, isa);
            int wrong = 0;
            for (size_t i = 0; i < halves.size(); ++i) {
                const double value = meaning(halves[i], dtype);
                wrong += std::isnan(value) ? !std::isnan(wide[i]) : wide[i] != value;
            }
            CHECK(wrong == 0);
        }
}

// Judges times, so it needs a machine without other work: `make bench` runs it.
TEST_CASE("packing for the wire keeps up with memory", "[.bench]") {
    constexpr int64_t kNumel = 1 << 20;
    const std::vector<float> values = drawn_values(kNumel, 1);
    std::vector<float> back(values.size());
    for (const WirePacking packing : kWirePackings)
        for (const bool drawn : {false, true}) {
            std::vector<std::byte> out(static_cast<size_t>(wire_bytes(packing, kNumel, 4)));
            double pack_s = 1e9, unpack_s = 1e9;
            for (int turn = 0; turn < 20; ++turn) {
                const auto begin = std::chrono::steady_clock::now();
                pack_for_wire(packing, values, out, {drawn, 1});
                const auto packed = std::chrono::steady_clock::now();
                unpack_from_wire(packing, out, back);
                const auto end = std::chrono::steady_clock::now();
                pack_s = std::min(pack_s, std::chrono::duration<double>(packed - begin).count());
                unpack_s = std::min(unpack_s, std::chrono::duration<double>(end - packed).count());
            }
            WARN((packing == WirePacking::kInt8 ? "8 bits" : "4 bits")
                 << (drawn ? " drawn" : "") << ": GB/s of fp32 packed " << kNumel * 4 / pack_s / 1e9
                 << ", unpacked " << kNumel * 4 / unpack_s / 1e9);
            CHECK(pack_s < 0.02);
        }
}

TEST_CASE("values in 16 bits take two bytes each and are rounded to the nearest, once") {
    std::vector<float> values = drawn_values(10'001, 3);
    values[0] = 65519.0F;  // the last below fp16's infinity
    values[1] = -65520.0F;
    values[2] = std::numeric_limits<float>::quiet_NaN();
    values[3] = 0x1p-26F;
    for (const auto& [packing, bits] :
         {std::pair{WirePacking::kBf16, 8}, std::pair{WirePacking::kF16, 11}}) {
        CHECK(wire_bytes(packing, 10'001, 4) == 20'002);
        for (const Isa isa : available()) {
            const std::vector<std::byte> bytes = on_wire(packing, values, {}, isa);
            CHECK(bytes == on_wire(packing, values));
            const std::vector<float> once = arrived(packing, bytes, values.size(), isa);
            CHECK(std::isnan(once[2]));
            CHECK(std::isinf(once[1]) == (packing == WirePacking::kF16));
            CHECK(once[0] == (packing == WirePacking::kF16 ? 65504.0F : 65536.0F));
            CHECK((once[3] == 0) == (packing == WirePacking::kF16));
            for (size_t i = 4; i < values.size(); ++i) {
                const float allowed = std::max(std::ldexp(std::fabs(values[i]), -bits),
                                               packing == WirePacking::kF16 ? 0x1p-25F : 0.0F);
                if (!(std::fabs(once[i] - values[i]) <= allowed))
                    FAIL(values[i] << " became " << once[i]);
            }
            std::vector<float> finite(once.begin() + 4, once.end());
            CHECK(arrived(packing, on_wire(packing, finite, {}, isa), finite.size(), isa) ==
                  finite);
        }
    }
}
