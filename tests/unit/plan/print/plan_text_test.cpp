#include "plan/print/plan_text.h"

#include <fmt/core.h>

#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace plan;

namespace {

constexpr int64_t kPlanTextLayerNumel = 64;

// Returns two layers of one parameter each. Each parameter is in a bucket of its own.
ModelInfo two_layers() {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    for (int s = 0; s < 2; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.output_bytes = Bytes{1000};
        segment.activation_bytes = Bytes{5000};
        segment.parameters.push_back(s);
        model.parameters.push_back({segment.name + ".weight", kPlanTextLayerNumel, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

struct Texts {
    std::string table;
    std::string json;
};

// Returns the texts of rank 0 of a bf16 job on HOSTS hosts with one rank each. Shards are cut at
// half a layer.
Texts texts(int stage, int hosts) {
    const ModelInfo model = two_layers();
    const FlatLayout layout = make_flat_layout(
        model, {kPlanTextLayerNumel, 1, true, 0, /*block_numel=*/kPlanTextLayerNumel / 2});
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

}  // namespace

// Two hosts share 64 elements and 16 flags of each bucket. A Reduce sends the other host's 32
// elements and the flags, (32 + 16) x 4 B. A Gather sends this rank's 32 elements in bf16, 64 B.
// There is one for each forward, and one more for the first layer's backward (the last layer's
// backward follows its forward at once).
TEST_CASE("plan says what each instruction and the step send to other hosts") {
    const Texts stage3 = texts(3, 2);
    CHECK(test::count_of(stage3.json, "\"op\": \"Reduce\"") == 2);
    CHECK(test::count_of(stage3.json, "\"sent_bytes\": 192,") == 2);
    CHECK(test::count_of(stage3.json, "\"op\": \"Gather\"") == 3);
    CHECK(test::count_of(stage3.json, "\"sent_bytes\": 64,") == 3);
    CHECK(test::count_of(stage3.json, "\"sent_bytes\": 576,") == 1);
    CHECK(test::count_of(
              stage3.table,
              "sent to other hosts by this rank's host, per step: 576 B (reduce 384 B, gather 192 "
              "B)\n") == 1);
    CHECK(test::count_of(
              stage3.json,
              "\"sent_bytes_by_kind\": {\"reduce\": 384, \"gather\": 192, \"norm\": 0, ") == 1);
    // Stage 2 gathers in place after the update, with one Gather per bucket.
    CHECK(test::count_of(texts(2, 2).json, "\"sent_bytes\": 512,") == 1);
    for (int stage = 0; stage <= 3; ++stage)
        CHECK(test::count_of(texts(stage, 1).table, "per step: 0 B\n") == 2);
}

TEST_CASE("plan says the most that a rank holds of each kind") {
    // A rank has half of 128 elements: parameters 2 B, master copies 4 B, moments 8 B each. At
    // stage 0 it has all of them, and gradients of 4 B.
    const Texts stage3 = texts(3, 2);
    CHECK(test::count_of(stage3.json, "\"by_kind\": {\"parameters\": 128, ") == 1);
    CHECK(test::count_of(stage3.json,
                         "\"master\": 256, \"moments\": 512, \"activations\": 10000, ") == 1);
    CHECK(test::count_of(stage3.table,
                         "\nmaster                256 B  fp32 copies of 16-bit parameters\n") == 1);
    CHECK(test::count_of(stage3.table, "\nlive values ") == 1);
    CHECK(test::count_of(stage3.table, "\ndisk") == 0);  // nothing is there
    CHECK(test::count_of(stage3.table, "\nbuffers") == 0);
    CHECK(test::count_of(texts(0, 2).json,
                         "\"by_kind\": {\"parameters\": 256, \"gradients\": 512, "
                         "\"master\": 512, \"moments\": 1024, ") == 1);
}

TEST_CASE("layers that follow each other and are equal are one row, or one for each piece") {
    using Rows = std::vector<std::vector<std::string>>;
    const SegmentRow small{"", {"5", "1 MiB"}}, large{"", {"9", "2 MiB"}};
    const auto named = [](SegmentRow row, std::string name) {
        row.name = std::move(name);
        return row;
    };
    const std::vector<SegmentRow> plain = {named(small, "embed"),      named(large, "m.layers.0"),
                                           named(small, "m.layers.1"), named(small, "m.layers.2"),
                                           named(small, "m.layers.3"), named(small, "head")};
    CHECK(numbered_rows(plain, true) == Rows{{"0", "embed", "5", "1 MiB"},
                                             {"1", "m.layers.0", "9", "2 MiB"},
                                             {"2..4", "m.layers.1 to 3, each", "5", "1 MiB"},
                                             {"5", "head", "5", "1 MiB"}});
    CHECK(numbered_rows(plain, false).size() == plain.size());
    CHECK(numbered_rows(plain, false)[3] == Rows{{"3", "m.layers.2", "5", "1 MiB"}}[0]);

    // Two segments per layer. The second one has its module's name.
    std::vector<SegmentRow> cut = {named(small, "wte")};
    for (const char* layer : {"b.0", "b.1", "b.2"}) {
        cut.push_back(named(small, layer));
        cut.push_back(named(large, std::string(layer) + ".mlp"));
    }
    CHECK(numbered_rows(cut, true) == Rows{{"0", "wte", "5", "1 MiB"},
                                           {"1, 3..5", "b.0 to 2, each", "5", "1 MiB"},
                                           {"2, 4..6", "b.0 to 2.mlp, each", "9", "2 MiB"}});
    cut.resize(5);
    CHECK(numbered_rows(cut, true)[1][0] == "1, 3");

    // Equal numbers are not enough: another name, a gap, a range of layers.
    for (const auto& [first, second] : {std::pair("a.0", "b.1"), std::pair("a.0", "a.2"),
                                        std::pair("a.0..a.1", "a.2..a.3"), std::pair("a", "b")})
        CHECK(numbered_rows({named(small, first), named(small, second)}, true).size() == 2);
    CHECK(numbered_rows({}, true).empty());
}

}  // namespace dslaunch
