#include "plan/choose/stage_choice.h"

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns a model of two trained segments after a frozen one.
ModelInfo small_model() {
    ModelInfo model;
    model.batch_bytes = Bytes{16};
    model.parameters = {{"embed", 10, 4, false}, {"w0", 100, 4, true}, {"w1", 1001, 4, true}};
    for (int s = 0; s < 3; ++s) {
        SegmentInfo segment;
        segment.parameters = {s};
        segment.output_bytes = Bytes{100 + s};
        segment.activation_bytes = Bytes{s == 0 ? 0 : 1000 + s};
        segment.backward_peak = Bytes{s == 0 ? 0 : 1500 + s};
        segment.forward_flops = 1000 * (s + 1);
        segment.backward = s > 0;
        model.segments.push_back(segment);
    }
    return model;
}

StepPlanOptions options_of(int stage, int ranks) {
    StepPlanOptions options;
    options.stage = stage;
    options.world_size = ranks;
    return options;
}

}  // namespace

TEST_CASE("a segment keeps what autograd keeps and its inputs, a frozen one nothing") {
    const ModelInfo model = small_model();
    const StageRequest request =
        make_stage_request(model, options_of(0, 1), times_from_flops(model, 1000));
    REQUIRE(request.segments.size() == 3);
    CHECK(request.segments[0].forward_s == 1);
    CHECK(request.segments[0].backward_input_s == 0);
    CHECK(request.segments[0].activations == Bytes{});
    CHECK(request.segments[2].forward_s == 3);
    CHECK(request.segments[2].backward_input_s == 3);
    CHECK(request.segments[2].backward_weight_s == 3);
    CHECK(request.segments[2].activations == Bytes{1002 + 101});
    CHECK(request.segments[2].kept_for_weight == Bytes{1002 + 101});
    CHECK(request.segments[2].backward_takes == Bytes{500});
    CHECK(request.segments[1].outputs == Bytes{101});
}

TEST_CASE("no pass is faster than what it touches passes the memory") {
    const std::vector<SegmentTimes> times = times_from_flops(small_model(), 1e9, 1000);
    CHECK(times[0].forward_s == Approx((0 + 40) / 1000.0));
    CHECK(times[1].forward_s == Approx((1001 + 400) / 1000.0));
    CHECK(times[2].backward_weight_s == Approx((1002 + 4004) / 1000.0));
    CHECK(times_from_flops(small_model(), 1, 1e9)[2].forward_s == 3000);
}

TEST_CASE("between the halves of a backward a segment keeps what was measured, and its inputs") {
    ModelInfo model = small_model();
    model.segments[2].weight_half_bytes = Bytes{300};
    const StageRequest request =
        make_stage_request(model, options_of(0, 1), times_from_flops(model, 1000));
    CHECK(request.segments[2].kept_for_weight == Bytes{300 + 101});
    CHECK(request.segments[2].activations == Bytes{1002 + 101});
    CHECK(request.segments[1].kept_for_weight == Bytes{1001 + 100});
}

TEST_CASE("with recompute only inputs are kept, and a backward takes a forward more") {
    const ModelInfo model = small_model();
    StepPlanOptions options = options_of(0, 1);
    options.recompute_groups = 3;
    const StageRequest request = make_stage_request(model, options, times_from_flops(model, 1000));
    CHECK(request.segments[2].backward_input_s == 6);
    CHECK(request.segments[2].backward_weight_s == 3);
    CHECK(request.segments[2].activations == Bytes{101});
    CHECK(request.segments[2].backward_takes == Bytes{500 + 1002});
}

TEST_CASE("what a rank holds of a parameter follows its ZeRO stage") {
    const ModelInfo model = small_model();
    const auto held = [&](const StepPlanOptions& options, size_t parameter) {
        return make_stage_request(model, options, times_from_flops(model, 1))
            .state_bytes[parameter]
            .value;
    };
    // 4 bytes each of weights and gradients, 8 of Adam's moments; 1001 elements on 4 ranks.
    CHECK(held(options_of(0, 4), 2) == 16 * 1001);
    CHECK(held(options_of(1, 4), 2) == 8 * 1001 + 2 * 1001);
    CHECK(held(options_of(2, 4), 2) == 4 * 1001 + 1001 + 2 * 1001);
    CHECK(held(options_of(3, 4), 2) == 4 * 1001);
    CHECK(held(options_of(0, 4), 0) == 40);  // frozen: weights alone
    StepPlanOptions offloaded = options_of(3, 1);
    offloaded.offload.states = true;
    CHECK(held(offloaded, 2) == 8 * 1001);
    offloaded.offload.parameters = true;
    CHECK(held(offloaded, 2) == 4 * 1001);
    StepPlanOptions half = options_of(0, 1);
    half.master = true;
    CHECK(held(half, 1) == 20 * 100);
}

}  // namespace dslaunch
