#include "plan/print/pipeline_text.h"

#include <fmt/core.h>

#include "base/error.h"
#include "plan/choose/schedule_choice.h"
#include "plan/choose/stage_choice.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns LAYERS equal layers of 1 GFLOP. The last layer also reads the first one's parameter.
ModelInfo layered(int layers) {
    ModelInfo model;
    for (int s = 0; s < layers; ++s) {
        model.parameters.push_back({fmt::format("layer.{}.weight", s), 1 << 18, 4, true});
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.parameters = {s};
        segment.output_bytes = mib(1);
        segment.activation_bytes = mib(9);
        segment.backward_peak = mib(9);
        segment.forward_flops = 1'000'000'000;
        model.segments.push_back(segment);
    }
    model.batch_bytes = mib(1);
    model.segments.back().parameters.push_back(0);
    return model;
}

std::vector<PipelineOption> options_for(const ModelInfo& model, const PipelineWish& wish,
                                        std::optional<Bytes> memory_max = {}) {
    // 1 GFLOP in 1 s.
    StageRequest request = make_stage_request(model, {}, times_from_flops(model, 1e9));
    request.memory_max = memory_max;
    return pipeline_options(request, wish);
}

}  // namespace

TEST_CASE("all schedules stand side by side with their bubbles, activations and memory") {
    const std::vector<PipelineOption> options = options_for(layered(8), {4, 2, 8, {}, {}});
    // 2 layers a stage: 6 s a micro batch; 9 + 1 MiB of activations and 4 MiB of states a layer;
    // the last stage has the first parameter too.
    CHECK(schedules_table(options) ==
          "schedule     stages chunks     step ms    idle   activations        memory\n"
          "gpipe             4      1   66000.000  27.3 %     160.0 MiB     172.0 MiB\n"
          "1f1b              4      1   66000.000  27.3 %      80.0 MiB      88.0 MiB\n"
          "interleaved       4      2   57000.000  15.8 %     110.0 MiB     118.0 MiB\n"
          "zb-h1             4      1   54000.000  11.1 %      80.0 MiB      92.0 MiB\n"
          "zb-v              4      2   51000.000   5.9 %      80.0 MiB      88.0 MiB\n");
    CHECK(fastest_of(options) == 4);
}

TEST_CASE("stages are told with what they hold, and what is tied between them") {
    const ModelInfo model = layered(6);
    const std::vector<PipelineOption> options =
        options_for(model, {2, 2, 4, ScheduleKind::k1F1B, {4}});
    REQUIRE(options.size() == 1);
    const std::string text = stages_table(options[0], model);
    CHECK_THAT(text, Catch::Contains("    0      0  0..3 layer.0 .. layer.3"));
    CHECK_THAT(text, Catch::Contains("    1      0  4..5 layer.4 .. layer.5"));
    CHECK_THAT(text, Catch::Contains("layer.0.weight is used in stages 0, 1: its gradients are "
                                     "added up across these stages\n"));
    JsonWriter json;
    schedules_json(options, model, json);
    CHECK_THAT(json.text(), Catch::Contains("\"tied\": [{\"parameter\": \"layer.0.weight\", "
                                            "\"stages\": [0, 1]}]"));
    CHECK_THAT(json.text(), Catch::Contains("\"begin_segment\": 4, \"end_segment\": 6, "
                                            "\"parameters\": 786432, "
                                            "\"forward_flops\": 2000000000, \"forward_s\": 2,"));
}

TEST_CASE("a schedule that cannot be had says why, beside the others or alone") {
    const ModelInfo model = layered(4);
    const std::vector<PipelineOption> options = options_for(model, {4, 2, 4, {}, {}});
    CHECK_THAT(schedules_table(options),
               Catch::Contains("zb-v              4      2 not possible: 4 stages of 2 chunks need "
                               "at least 8 segments, but the model has 4"));
    CHECK(fastest_of(options) == 3);
    const auto refusal = [&](const PipelineWish& wish, Bytes memory_max) {
        return test::error_of([&] { static_cast<void>(options_for(model, wish, memory_max)); });
    };
    CHECK_THAT(refusal({4, 2, 4, ScheduleKind::kZeroBubbleV, {}}, gib(1)),
               Catch::Contains("at least 8 segments"));
    CHECK_THAT(refusal({4, 2, 4, ScheduleKind::k1F1B, {}}, mib(10)),
               Catch::Contains("no division into 4 stages fits in 10.0 MiB per rank"));
    CHECK(fastest_of(options_for(model, {4, 2, 4, {}, {}}, mib(1))) == -1);
}

}  // namespace dslaunch
