// The division of a bucket's blocks among bridges and hosts, and the plans of steps that exchange
// them.
#include "plan/exchange/sign_runs.h"

#include <vector>

#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns layers with small sizes, prime sizes, and sizes of many blocks.
ModelInfo layers() {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    for (const int64_t numel : {1, 37, 4099, 200'003, 16'384, 50'000}) {
        SegmentInfo segment;
        segment.parameters = {static_cast<int>(model.parameters.size())};
        segment.output_bytes = segment.activation_bytes = Bytes{1000};
        model.parameters.push_back({"p" + std::to_string(numel), numel, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

// Returns the plans of all ranks on NODES hosts with RANKS each.
std::vector<StepPlan> plans_of(int nodes, int ranks, StepPlanOptions options) {
    const ModelInfo model = layers();
    const FlatLayout layout =
        make_flat_layout(model, {.bucket_numel_max = 210'000, .bucket_numel_min = 1});
    const Partition partition =
        make_partition(layout, model, ShardBy::kFlat, options.stage > 0 ? ranks : nodes * ranks);
    options.partition = &partition;
    options.world_size = nodes * ranks;
    options.local_world_size = ranks;
    options.node_sizes.assign(static_cast<size_t>(nodes), ranks);
    options.shard_group = options.stage > 0 ? ranks : 0;
    options.compression = {true, true};
    std::vector<StepPlan> plans;
    for (int rank = 0; rank < nodes * ranks; ++rank) {
        options.rank = rank;
        options.local_rank = rank % ranks;
        plans.push_back(make_step_plan(model, layout, options));
    }
    return plans;
}

}  // namespace

TEST_CASE("the runs of all bridges and hosts tile every bucket's blocks in order") {
    const FlatLayout layout =
        make_flat_layout(layers(), {.bucket_numel_max = 210'000, .bucket_numel_min = 1});
    for (int b = 0; b < layout.trained_buckets; ++b)
        for (int nodes = 1; nodes <= 17; ++nodes)
            for (const int bridges : {1, 2, 3, 8}) {
                const SignRuns runs(layout, b, nodes, bridges);
                std::vector<LayoutBlock> all;
                Bytes sent;
                for (int bridge = 0; bridge < bridges; ++bridge) {
                    int64_t of_bridge = 0;
                    for (int node = 0; node < nodes; ++node) {
                        const auto run = runs.run(bridge, node);
                        all.insert(all.end(), run.begin(), run.end());
                        of_bridge += numel_of(run);
                    }
                    CHECK(numel_of(runs.of_bridge(bridge)) == of_bridge);
                }
                const std::vector<LayoutBlock> expected = blocks_of(layout, b);
                CHECK(all.size() == expected.size());
                for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].begin == expected[i].begin);
                for (int node = 0; node < nodes; ++node) sent += runs.sent_by(node);
                // Each block goes from all other hosts to its host, and back to them.
                CHECK(sent.value == 2 * (nodes - 1) * sign_message_bytes(expected));
                CHECK(sent == runs.sent_by_all());
            }
}

TEST_CASE("a message has a scale for each block and a bit for each element, from a byte on") {
    const std::vector<LayoutBlock> blocks = {{0, 0, 0, 1}, {0, 1, 16, 8}, {0, 2, 32, 9}};
    CHECK(sign_message_bytes(blocks) == 3 * 4 + 1 + 1 + 2);
}

TEST_CASE("a step that compresses exchanges each bucket once before its updates") {
    for (const int stage : {0, 1, 2, 3})
        for (const int flags : {0, 1, 2, 3})
            for (const Exchange exchange : {Exchange::kExact, Exchange::kMomentum,
                                            Exchange::kGradient, Exchange::kNone, Exchange::kMoves})
                for (const int ranks : {1, 2}) {
                    INFO("stage " << stage << ", flags " << flags << ", " << ranks << " ranks, "
                                  << exchange_name(exchange));
                    StepPlanOptions options;
                    options.stage = stage;
                    options.clip = (flags & 1) != 0;
                    options.accumulation_steps = 2;
                    options.reduce_each_micro_step = (flags & 2) != 0;
                    options.exchange = exchange;
                    const std::vector<StepPlan> plans = plans_of(3, ranks, options);
                    for (int node = 0; node < 3; ++node)
                        CHECK(
                            check_plans(std::span(plans).subspan(static_cast<size_t>(node * ranks),
                                                                 static_cast<size_t>(ranks)))
                                .empty());
                    std::vector<int> exchanged;
                    for (const Instruction& instruction : plans[0].instructions) {
                        if (instruction.op == Op::kExchange)
                            exchanged.push_back(instruction.bucket);
                        if (instruction.op == Op::kUpdate && is_compressed(exchange))
                            CHECK(exchanged.back() == instruction.bucket);
                        if (instruction.op == Op::kReduce && exchange != Exchange::kExact)
                            CHECK(instruction.sent.value == 0);
                    }
                    CHECK(exchanged.empty() == !is_compressed(exchange));
                    CHECK((plans[0].sent().value == 0) == (exchange == Exchange::kNone));
                    for (const StepPlan& plan : plans) CHECK(plan.hash() == plans[0].hash());
                }
}

TEST_CASE("a compressed step sends a thirty-second of the bytes, and the scales") {
    StepPlanOptions options;
    const int64_t exact = plans_of(2, 1, options)[0].sent().value;
    options.exchange = Exchange::kMomentum;
    const int64_t compressed = plans_of(2, 1, options)[0].sent().value;
    CHECK(exact / compressed == 31);
}

}  // namespace dslaunch
