#include "plan/layout/partition.h"

#include <fmt/core.h>

#include <random>

#include "plan/layout/reused_buffers.h"
#include "plan/step/gather_schedule.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns parameters of odd sizes in SEGMENTS layers. The last layer also reads the first
// parameter.
ModelInfo odd_model(int segments, uint32_t seed) {
    std::mt19937 random(seed);
    ModelInfo model;
    for (int s = 0; s < segments; ++s) {
        SegmentInfo segment;
        if (s + 1 == segments && s > 0) segment.parameters.push_back(0);
        for (const char* name : {".weight", ".bias", ".scale"}) {
            ParameterInfo parameter;
            parameter.name = fmt::format("layer.{}{}", s, name);
            parameter.rows = 1 + static_cast<int64_t>(random() % 37);
            parameter.numel = parameter.rows * (1 + static_cast<int64_t>(random() % 41));
            parameter.trainable = random() % 5 != 0;
            segment.parameters.push_back(static_cast<int>(model.parameters.size()));
            model.parameters.push_back(parameter);
        }
        model.segments.push_back(segment);
    }
    return model;
}

}  // namespace

TEST_CASE("shards tile every bucket for every way of sharding and every world size") {
    for (const uint32_t seed : {1U, 2U, 3U}) {
        for (const int segments : {1, 2, 6}) {
            const ModelInfo model = odd_model(segments, seed);
            for (const int64_t bucket_min : {int64_t{1}, int64_t{500}, int64_t{1} << 20}) {
                const FlatLayout layout =
                    make_flat_layout(model, {1 << 20, bucket_min, true, 20, 64});
                for (int by = 0; by < 4; ++by) {
                    for (int world_size = 1; world_size <= 17; ++world_size) {
                        const Partition partition =
                            make_partition(layout, model, static_cast<ShardBy>(by), world_size);
                        REQUIRE(partition.buckets.size() == layout.buckets.size());
                        int64_t owned = 0;
                        for (int rank = 0; rank < world_size; ++rank)
                            for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b)
                                owned += partition.owned_numel(rank, b);
                        REQUIRE(owned == layout.numel);
                        for (size_t b = 0; b < layout.buckets.size(); ++b) {
                            int64_t end = 0;
                            for (const ShardPiece& piece : partition.buckets[b]) {
                                REQUIRE(piece.range.begin == end);
                                REQUIRE(piece.range.numel > 0);
                                REQUIRE(piece.owner >= 0);
                                REQUIRE(piece.owner < world_size);
                                end = piece.range.end();
                            }
                            REQUIRE(end == layout.buckets[b].numel);
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("flat shards lie within a block of an equal share, and cut no block") {
    const ModelInfo model = odd_model(5, 7);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1 << 20, true, 0, 64});
    for (int world_size = 1; world_size <= 17; ++world_size) {
        const Partition partition = make_partition(layout, model, ShardBy::kFlat, world_size);
        for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) {
            const int64_t numel = layout.buckets[b].numel;
            for (int rank = 0; rank < world_size; ++rank) {
                const int64_t share = partition.owned_numel(rank, b);
                // The share has two borders, each moved by at most half a block and its padding.
                CHECK(std::abs(share - numel / world_size) <= 64 + 16);
            }
            for (const LayoutBlock& block : blocks_of(layout, b)) {
                int owners = 0;
                for (const ShardPiece& piece : partition.buckets[b])
                    if (intersect(piece.range, {block.begin, block.numel}).numel > 0) ++owners;
                CHECK(owners == 1);
            }
        }
    }
}

TEST_CASE("layers and modules stay together, rows are not cut") {
    const ModelInfo model = odd_model(6, 11);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, false, 0, 64});
    for (const int world_size : {1, 2, 3, 5, 8}) {
        const auto owners_of = [&](const Partition& partition, int slice) {
            const ParameterSlice& of = layout.slices[slice];
            const int b = layout.bucket_of(slice);
            const int64_t begin = of.offset_numel - layout.buckets[b].offset_numel;
            std::vector<ShardPiece> found;
            for (const ShardPiece& piece : partition.buckets[b]) {
                const Range both = intersect(piece.range, {begin, of.numel});
                if (both.numel > 0)
                    found.push_back({{both.begin - begin, both.numel}, piece.owner});
            }
            return found;
        };
        const Partition layers = make_partition(layout, model, ShardBy::kLayer, world_size);
        const Partition modules = make_partition(layout, model, ShardBy::kGroup, world_size);
        const Partition rows = make_partition(layout, model, ShardBy::kRow, world_size);
        const Partition whole = make_partition(layout, model, ShardBy::kParameter, world_size);
        CHECK(balance_of(whole).imbalance <= balance_of(modules).imbalance + 1e-12);
        for (int i = 0; i < layout.trained_slices; ++i) {
            const ParameterSlice& slice = layout.slices[i];
            REQUIRE(owners_of(layers, i).size() == 1);
            REQUIRE(owners_of(modules, i).size() == 1);
            REQUIRE(owners_of(whole, i).size() == 1);
            const ParameterInfo& parameter = model.parameters[slice.parameter];
            for (const ShardPiece& piece : owners_of(rows, i))
                CHECK(piece.range.begin % (parameter.numel / parameter.rows) == 0);
            for (int j = 0; j < i; ++j) {
                const ParameterSlice& other = layout.slices[j];
                if (other.first_segment == slice.first_segment)
                    CHECK(owners_of(layers, i)[0].owner == owners_of(layers, j)[0].owner);
            }
        }
    }
    // 6 equal layers on 3 ranks: two each.
    ModelInfo even;
    for (int s = 0; s < 6; ++s) {
        even.parameters.push_back({fmt::format("l{}.w", s), 160, 4, true});
        SegmentInfo segment;
        segment.parameters = {s};
        even.segments.push_back(segment);
    }
    const FlatLayout equal = make_flat_layout(even, {1 << 20, 1, false, 0, 64});
    const PartitionBalance balance = balance_of(make_partition(equal, even, ShardBy::kLayer, 3));
    CHECK(balance.numel_min == 320);
    CHECK(balance.numel_max == 320);
    CHECK(balance.imbalance == 1.0);
}

TEST_CASE("buffers are never held by two uses at once, and two are enough for a chain") {
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
        std::vector<BufferUse> uses;
        int begin = 0;
        for (int u = 0; u < 12; ++u) {
            begin += static_cast<int>(random() % 3);
            uses.push_back({1 + static_cast<int64_t>(random() % 100), begin,
                            begin + static_cast<int>(random() % 4)});
        }
        const ReusedBuffers buffers = assign_buffers(uses);
        for (size_t a = 0; a < uses.size(); ++a) {
            REQUIRE(buffers.numel[buffers.buffer_of_use[a]] >= uses[a].numel);
            for (size_t b = 0; b < a; ++b)
                if (buffers.buffer_of_use[a] == buffers.buffer_of_use[b])
                    REQUIRE(uses[b].end < uses[a].begin);
        }
    }
    std::vector<BufferUse> chain;
    for (int u = 0; u < 9; ++u) chain.push_back({100, u, u});
    CHECK(assign_buffers(chain).numel == std::vector<int64_t>{100, 100});
}

TEST_CASE("gathers keep to their limits") {
    ModelInfo model;
    for (int s = 0; s < 6; ++s) {
        model.parameters.push_back({fmt::format("w{}", s), 160, 4, true});
        SegmentInfo segment;
        segment.parameters = {s};
        model.segments.push_back(segment);
    }
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, false, 0, 64});
    std::vector<std::vector<int>> buckets_of;
    for (int s = 0; s < 6; ++s) buckets_of.push_back({s});
    const std::vector<int> positions = compute_positions(model, {}, {0, 6});
    REQUIRE(positions == std::vector<int>{0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0});

    // There are 11 gathers, because the last layer's is kept from forward to backward.
    const GatherSchedule plain = make_gather_schedule(layout, buckets_of, positions, {960, 0, 0});
    CHECK(plain.uses.size() == 11);
    CHECK(plain.live_numel_max == 160);
    const GatherSchedule ahead = make_gather_schedule(layout, buckets_of, positions, {960, 1, 0});
    CHECK(ahead.live_numel_max == 320);
    for (size_t u = 1; u < ahead.uses.size(); ++u)
        CHECK(ahead.uses[u].issue == ahead.uses[u - 1].begin);
    // Layer 5, of 160 elements, lies between the two readings of layer 4.
    const GatherSchedule near = make_gather_schedule(layout, buckets_of, positions, {960, 0, 160});
    CHECK(near.uses.size() == 10);
    const GatherSchedule all = make_gather_schedule(layout, buckets_of, positions, {960, 0, 960});
    CHECK(all.uses.size() == 6);
    CHECK(all.live_numel_max == 960);
    const GatherSchedule tight = make_gather_schedule(layout, buckets_of, positions, {400, 0, 960});
    CHECK(tight.live_numel_max <= 400);
    CHECK(tight.uses.size() == 10);
    for (const GatherSchedule* schedule : {&plain, &ahead, &near, &all, &tight})
        for (size_t p = 0; p < positions.size(); ++p) {
            int held = 0;
            for (const GatherUse& use : schedule->uses)
                if (use.bucket == positions[p] && use.begin <= static_cast<int>(p) &&
                    use.end >= static_cast<int>(p))
                    ++held;
            CHECK(held == 1);
        }
}

}  // namespace dslaunch
