// Updates of states that are kept in fewer bits, tile by tile.
#include "kernels/packed_update.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "kernels/flat_optimizer.h"
#include "kernels/packing.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;

namespace {

std::vector<float> waves(int64_t numel, float phase, float size) {
    std::vector<float> values(static_cast<size_t>(numel));
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = size * std::sin(0.37F * static_cast<float>(i) + phase);
    return values;
}

// Adam's states of NUMEL elements, packed, and fp32 states that start with the same values.
struct States {
    int64_t numel;
    StatePacking first, second;
    std::vector<std::byte> packed_first, packed_second;
    std::vector<float> m, v, p;

    States(int64_t n, StatePacking a, StatePacking b)
        : numel(n),
          first(a),
          second(b),
          packed_first(static_cast<size_t>(tiled_bytes(a, n))),
          packed_second(static_cast<size_t>(tiled_bytes(b, n))),
          m(waves(n, 0.1F, 0.5F)),
          v(waves(n, 0.2F, 0.1F)),
          p(waves(n, 0.3F, 1.0F)) {
        for (float& value : v) value = value * value + 1e-4F;
        pack_tiles(a, m, 0, n, packed_first.data(), 1);
        pack_tiles(b, v, 0, n, packed_second.data(), 2);
        read();
    }
    // Sets the fp32 states to the packed values.
    void read() {
        unpack_tiles(first, packed_first.data(), 0, numel, m);
        unpack_tiles(second, packed_second.data(), 0, numel, v);
    }
    [[nodiscard]] FlatRange range(int64_t begin, int64_t n, const float* const* gradient) {
        FlatRange made;
        made.numel = n;
        made.gradients = {gradient, 1};
        made.parameters = std::span(p).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
        made.packed = {
            {first, second}, {packed_first.data(), packed_second.data()}, numel, begin, 77};
        return made;
    }
};

constexpr AdamStep kStep{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 3};

void update(const FlatRange& range) {
    const TileRange tiles = tiles_of(range);
    for (int64_t tile = tiles.first; tile < tiles.end; ++tile)
        update_tile(range, tile, [](const FlatRange& part) { adam_step(part, kStep); });
}

}  // namespace

TEST_CASE("a packed update is the fp32 one between unpacking and packing") {
    for (const auto& [first, second] : {std::pair{StatePacking::kBf16, StatePacking::kBf16},
                                        {StatePacking::kInt8, StatePacking::kUint8Root},
                                        {StatePacking::kNone, StatePacking::kNone}})
        for (const int64_t numel : {int64_t{1}, int64_t{100}, int64_t{16384}, int64_t{40000}}) {
            CAPTURE(static_cast<int>(first), numel);
            States packed(numel, first, second), plain(numel, first, second);
            const std::vector<float> gradient = waves(numel, 0.7F, 0.2F);
            const float* const source = gradient.data();
            update(packed.range(0, numel, &source));
            FlatRange range;
            range.numel = numel;
            range.gradients = {&source, 1};
            range.parameters = plain.p;
            range.first = plain.m;
            range.second = plain.v;
            adam_step(range, kStep);
            CHECK(packed.p == plain.p);  // the same bits: it is computed in fp32
            packed.read();
            // Rounding in blocks of 256: off by less than 1/127 of the block's largest.
            for (int64_t i = 0; i < numel; ++i) {
                const auto at = static_cast<size_t>(i);
                REQUIRE(std::abs(packed.m[at] - plain.m[at]) <= 0.55F / 127);
                REQUIRE(std::abs(packed.v[at] - plain.v[at]) <= 0.012F * 511 / (255 * 255) + 1e-3F);
                REQUIRE(packed.v[at] > 0);
            }
            if (first == StatePacking::kNone) CHECK(packed.m == plain.m);
        }
}

TEST_CASE("a packed update of a part leaves parameters outside it, and states up to rounding") {
    constexpr int64_t kNumel = 40000, kBegin = 16000, kPart = 1000;
    States packed(kNumel, StatePacking::kInt8, StatePacking::kUint8Root);
    const States before = packed;
    const std::vector<float> gradient = waves(kPart, 0.7F, 0.2F);
    const float* const source = gradient.data();
    const FlatRange range = packed.range(kBegin, kPart, &source);
    CHECK(tiles_of(range).first == 0);
    CHECK(tiles_of(range).end == 2);
    update(range);
    packed.read();
    int64_t moved = 0;
    for (int64_t i = 0; i < kNumel; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool inside = i >= kBegin && i < kBegin + kPart;
        if (inside) {
            moved += packed.p[at] != before.p[at] ? 1 : 0;
            continue;
        }
        REQUIRE(packed.p[at] == before.p[at]);
        // At most one code up or down, if the quotient was off by a bit or the block's scale
        // changed.
        REQUIRE(std::abs(packed.m[at] - before.m[at]) <= 0.5F / 127 * 1.01F);
    }
    CHECK(moved == kPart);
}

TEST_CASE("tiles are as long as said, and each draws from its own numbers") {
    CHECK(tiled_bytes(StatePacking::kInt8, 16384) == 64 * 4 + 16384);
    CHECK(tiled_bytes(StatePacking::kInt8, 16385) == 64 * 4 + 16384 + 64);
    CHECK(tiled_bytes(StatePacking::kBf16, 100) == round_up(200, 64));
    // 0.3 of a step above a code: about 3 of 10 elements are rounded up, in any tile.
    const std::vector<float> values = [] {
        std::vector<float> made(2 * 16384, 10.3F / 127);
        for (size_t i = 0; i < made.size(); i += 256) made[i] = 1;
        return made;
    }();
    std::vector<std::byte> tiles(static_cast<size_t>(tiled_bytes(StatePacking::kInt8, 32768)));
    std::vector<float> back(values.size());
    pack_tiles(StatePacking::kInt8, values, 0, 32768, tiles.data(), 5);
    unpack_tiles(StatePacking::kInt8, tiles.data(), 0, 32768, back);
    double mean = 0;
    int64_t same = 0;
    for (size_t i = 0; i < back.size(); ++i) {
        if (i % 256 == 0) continue;
        mean += back[i] * 127;
        same += i < 16384 && back[i] == back[i + 16384] ? 1 : 0;
    }
    CHECK(mean / (2.0 * 16384 * 255 / 256) == Approx(10.3).epsilon(0.001));
    CHECK(same < 10650);  // 0.58 by chance; all if the tiles drew the same numbers
}
