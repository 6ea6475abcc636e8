// Costs of ways of sharding, compared with counts by hand, and the choice among them.
#include "plan/choose/shard_choice.h"

#include <fmt/core.h>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns segments of one parameter each, with NUMELS elements in rows of 64.
ModelInfo model_of(const std::vector<int64_t>& numels) {
    ModelInfo model;
    for (size_t s = 0; s < numels.size(); ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.parameters = {static_cast<int>(s)};
        model.parameters.push_back({segment.name + ".weight", numels[s], 4, true, numels[s] / 64});
        model.segments.push_back(segment);
    }
    return model;
}

struct Job {
    std::vector<int> nodes = {2};
    int stage = 3;
    OffloadPlan offload = {};
    int64_t block_numel = 64;
    bool on_host = false;  // each host has a copy

    [[nodiscard]] std::vector<ShardCost> costs(const ModelInfo& model) const {
        const FlatLayout layout = make_flat_layout(model, {1 << 24, 1, true, 0, block_numel});
        StepPlanOptions options;
        options.node_sizes = nodes;
        options.world_size = 0;
        for (const int ranks : nodes) options.world_size += ranks;
        options.stage = stage;
        options.offload = offload;
        options.shard_group = on_host ? nodes.front() : 0;
        options.local_world_size = nodes.front();
        return shard_costs(model, layout, options);
    }
};

const ShardCost& cost_of(const std::vector<ShardCost>& costs, ShardBy by) {
    return costs.at(static_cast<size_t>(by));
}

}  // namespace

TEST_CASE("on one host the disks get the same bytes whoever owns what, and flat it is") {
    // If layers are divided, one of the 2 ranks has two of the 3 layers of 64 Ki elements.
    const ModelInfo model = model_of({65536, 65536, 65536});
    Job job;
    job.offload = {true, true, 16384};
    const std::vector<ShardCost> costs = job.costs(model);
    for (const ShardCost& cost : costs) {
        CAPTURE(shard_by_name(cost.by));
        // fp32 Adam reads and writes the parameters and two moments. It reads the parameters twice
        // more.
        CHECK(cost.read.value == 3 * 65536 * (12 + 8));
        CHECK(cost.written.value == 3 * 65536 * 12);
        CHECK(cost.sent.value == 0);
    }
    CHECK(cost_of(costs, ShardBy::kFlat).balance.numel_max == 3 * 32768);
    CHECK(cost_of(costs, ShardBy::kLayer).balance.numel_max == 2 * 65536);
    CHECK(cost_of(costs, ShardBy::kFlat).extents_max == 6);
    CHECK(cost_of(costs, ShardBy::kLayer).extents_max == 8);
    CHECK(choose_shard(costs) == ShardBy::kFlat);
}

TEST_CASE("on several hosts the busiest one's disk counts") {
    // By layer, the first host owns two of three layers.
    const ModelInfo model = model_of({65536, 65536, 65536});
    Job job{{1, 1}, 3, {true, true, 16384}};
    const std::vector<ShardCost> costs = job.costs(model);
    CHECK(cost_of(costs, ShardBy::kFlat).written.value == 3 * 65536 * 12 / 2);
    CHECK(cost_of(costs, ShardBy::kLayer).written.value == 2 * 65536 * 12);
    // At stage 3, a host sends its half of the parameters for both gathers, and the gradients of
    // the other half. A flag for each parameter is added, in whole lines.
    CHECK(cost_of(costs, ShardBy::kFlat).sent.value >= 3 * 65536 / 2 * 4 * 3);
    CHECK(choose_shard(costs) == ShardBy::kFlat);
}

TEST_CASE("a host that has a copy of its own moves all of it through its disks") {
    const ModelInfo model = model_of({65536, 65536, 65536});
    const OffloadPlan offload{true, true, 16384};
    const std::vector<ShardCost> alone = Job{{2}, 3, offload}.costs(model);
    const std::vector<ShardCost> copies = Job{{2, 2}, 3, offload, 64, true}.costs(model);
    for (size_t kind = 0; kind < kShardKinds; ++kind) {
        CAPTURE(shard_by_name(alone[kind].by));
        CHECK(copies[kind].read.value == alone[kind].read.value);
        CHECK(copies[kind].written.value == alone[kind].written.value);
        CHECK(copies[kind].extents_max == alone[kind].extents_max);
        CHECK(copies[kind].balance.numel_max == alone[kind].balance.numel_max);
    }
}

TEST_CASE("rows are chosen where blocks are too few to be shared out evenly") {
    // One block of 64 Ki elements: flat sharding gives all of it to one rank, sharding by rows
    // gives half of it to each.
    const ModelInfo model = model_of({65536});
    Job job{{1, 1}, 1, {true, false, 16384}, 65536};
    const std::vector<ShardCost> costs = job.costs(model);
    REQUIRE(cost_of(costs, ShardBy::kFlat).balance.numel_max == 65536);
    REQUIRE(cost_of(costs, ShardBy::kRow).balance.numel_max == 32768);
    CHECK(choose_shard(costs) == ShardBy::kRow);
    // Half of the moments of 65536 elements, in each direction, at 1 MB/s to read and 0.5 to write.
    const std::string reason = shard_reason(costs, ShardBy::kRow, {1e6, 0.5e6}, "/d");
    CHECK_THAT(reason, Catch::Contains("row (the least), by "));
    CHECK_THAT(reason, Catch::Contains("flat 1.57 s and 65536 elements"));
    CHECK_THAT(reason, Catch::Contains("row 0.786 s and 32768 elements"));
    CHECK_THAT(shard_reason(costs, ShardBy::kRow, {}, "/d"),
               Catch::Contains("`dslaunch io-bench /d` measures"));
    job.offload = {};
    CHECK(choose_shard(job.costs(model)) == ShardBy::kRow);
}

TEST_CASE("less than a twentieth is no reason to leave flat") {
    std::vector<ShardCost> costs(kShardKinds);
    for (size_t kind = 0; kind < kShardKinds; ++kind) {
        costs[kind].by = static_cast<ShardBy>(kind);
        costs[kind].balance.numel_max = 1000;
        costs[kind].read = Bytes{100'000};
    }
    CHECK(choose_shard(costs) == ShardBy::kFlat);
    costs[2].read = Bytes{95'100};
    costs[3].balance.numel_max = 951;
    CHECK(choose_shard(costs) == ShardBy::kFlat);
    costs[2].read = Bytes{94'900};
    CHECK(choose_shard(costs) == ShardBy::kGroup);
    costs[3].balance.numel_max = 900;  // the disks' bytes decide first
    CHECK(choose_shard(costs) == ShardBy::kGroup);
    CHECK_THAT(shard_reason(costs, ShardBy::kGroup, {}, "/d"),
               Catch::Contains("group (the least)"));
    costs[2].read = Bytes{100'000};
    CHECK(choose_shard(costs) == ShardBy::kRow);
    costs[3].balance.numel_max = 1000;
    CHECK_THAT(shard_reason(costs, ShardBy::kFlat, {}, "/d"),
               Catch::Contains("flat (no other way is better)"));
}

}  // namespace dslaunch
