#include "plan/print/plan_text.h"

#include <fmt/core.h>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

constexpr int64_t kLayerNumel = 64;

// Two layers of one parameter each, every one in a bucket of its own.
ModelInfo two_layers() {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    for (int s = 0; s < 2; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.output_bytes = Bytes{1000};
        segment.activation_bytes = Bytes{5000};
        segment.parameters.push_back(s);
        model.parameters.push_back({segment.name + ".weight", kLayerNumel, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

struct Texts {
    std::string table;
    std::string json;
};

// Rank 0 of a bf16 job over HOSTS hosts of one rank each; shards are cut at half a layer.
Texts texts(int stage, int hosts) {
    const ModelInfo model = two_layers();
    const FlatLayout layout =
        make_flat_layout(model, {kLayerNumel, 1, true, 0, /*block_numel=*/kLayerNumel / 2});
    const Partition partition = make_partition(layout, model, ShardBy::kFlat, hosts);
    StepPlanOptions options;
    options.world_size = hosts;
    options.stage = stage;
    if (hosts > 1) options.node_sizes.assign(static_cast<size_t>(hosts), 1);
    options.parameter_bytes = 2;
    options.master = true;
    options.partition = &partition;
    const StepPlan plan = make_step_plan(model, layout, options);
    JsonWriter json;
    plan_json(plan, model, layout, json);
    return {plan_summary(plan) + instructions_table(plan, model, layout), json.text()};
}

int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

}  // namespace

// Two hosts share 64 elements and 16 flags of each bucket. Reduce sends the other's 32 and the
// flags, (32 + 16) x 4 B; a Gather this rank's 32 in bf16, 64 B: for each forward and once more for
// the first layer's backward (the last layer's follows its forward at once).
TEST_CASE("plan says what each instruction and the step send to other hosts") {
    const Texts stage3 = texts(3, 2);
    CHECK(count(stage3.json, "\"op\": \"Reduce\"") == 2);
    CHECK(count(stage3.json, "\"sent_bytes\": 192,") == 2);
    CHECK(count(stage3.json, "\"op\": \"Gather\"") == 3);
    CHECK(count(stage3.json, "\"sent_bytes\": 64,") == 3);
    CHECK(count(stage3.json, "\"sent_bytes\": 576,") == 1);
    CHECK(count(stage3.table,
                "sent to other hosts by this rank's host, a step: 576 B (reduce 384 B, gather 192 "
                "B)\n") == 1);
    CHECK(count(stage3.json,
                "\"sent_bytes_by_kind\": {\"reduce\": 384, \"gather\": 192, \"norm\": 0, ") == 1);
    // Stage 2 gathers in place after the update: one Gather a bucket.
    CHECK(count(texts(2, 2).json, "\"sent_bytes\": 512,") == 1);
    for (int stage = 0; stage <= 3; ++stage)
        CHECK(count(texts(stage, 1).table, "a step: 0 B\n") == 2);
}

TEST_CASE("plan says the most that a rank holds of each kind") {
    // A rank holds half of 128 elements: parameters 2 B, master 4 B, moments 8 B each; stage 0
    // holds them whole, with gradients of 4 B.
    const Texts stage3 = texts(3, 2);
    CHECK(count(stage3.json, "\"by_kind\": {\"parameters\": 128, ") == 1);
    CHECK(count(stage3.json, "\"master\": 256, \"moments\": 512, \"activations\": 10000, ") == 1);
    CHECK(count(stage3.table, "\nmaster                256 B\n") == 1);
    CHECK(count(stage3.table, "\nbuffers") == 0);
    CHECK(count(texts(0, 2).json,
                "\"by_kind\": {\"parameters\": 256, \"gradients\": 512, "
                "\"master\": 512, \"moments\": 1024, ") == 1);
}

}  // namespace dslaunch
