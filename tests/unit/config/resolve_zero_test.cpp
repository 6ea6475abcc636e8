// ZeRO stages and half precision, from their keys to the run config.

#include "resolved.h"
#include "support/catch.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;

namespace {

Resolved on_two_ranks(const std::string& text) {
    return resolved(text, 2);
}

Resolved at_stage(int64_t stage, const std::string& more = "", const std::string& own = "") {
    return on_two_ranks(fmt::format("{{zero_optimization: {{stage: {}, {}}}, dslaunch: {{{}}}}}",
                                    stage, more, own));
}

}  // namespace

TEST_CASE("every ZeRO stage resolves, with DeepSpeed's defaults") {
    for (int64_t stage : {0, 1, 2, 3}) {
        CAPTURE(stage);
        ZeroConfig expected;
        expected.stage = stage;
        const Resolved result = at_stage(stage);
        CHECK(result.config.zero == expected);
        CHECK(result.notes.empty());
        CHECK(expected.prefetch_bucket_numel == 50'000'000);
        CHECK(expected.persistent_numel_max == std::numeric_limits<int64_t>::max());
    }
}

TEST_CASE(
    "the numbers of stage 3 are read at stage 3, under either name, and said to be unread below") {
    const std::string numbers =
        "reduce_bucket_size: 1e6, allgather_bucket_size: 2e6, stage3_prefetch_bucket_size: 3e6, "
        "max_live_parameters: 4e6, stage3_max_reuse_distance: 0, param_persistence_threshold: 6, "
        "stage3_model_persistence_threshold: 7e6, sub_group_size: 1e9, reduce_scatter: true";
    ZeroConfig expected;
    expected.stage = 3;
    expected.reduce_bucket_numel = 1'000'000;
    expected.prefetch_bucket_numel = 3'000'000;
    expected.live_numel_max = 4'000'000;
    expected.reuse_distance_numel_max = 0;
    expected.persistent_parameter_numel = 6;
    expected.persistent_numel_max = 7'000'000;
    const Resolved third = at_stage(3, numbers);
    CHECK(third.config.zero == expected);
    REQUIRE(third.notes.size() == 1);
    CHECK(third.notes[0].find("allgather_bucket_size has no effect") != std::string::npos);
    CHECK(value_at(third, "zero_optimization.stage3_max_live_parameters").value.integer ==
          4'000'000);

    const Resolved first = at_stage(1, numbers);
    CHECK(first.config.zero.live_numel_max == ZeroConfig{}.live_numel_max);
    REQUIRE(first.notes.size() == 6);
    const std::string unread =
        "zero_optimization.max_live_parameters has no effect: read only at ZeRO stage 3";
    CHECK(std::any_of(first.notes.begin(), first.notes.end(),
                      [&](const std::string& note) { return note.ends_with(unread); }));
    CHECK(at_stage(0, numbers).notes.size() == 6);
}

TEST_CASE("auto sizes of ZeRO become numbers that are printed") {
    const Resolved result = at_stage(3,
                                     "reduce_bucket_size: auto, stage3_prefetch_bucket_size: auto, "
                                     "param_persistence_threshold: auto");
    CHECK(result.config.zero.prefetch_bucket_numel == 50'000'000);
    CHECK(value_at(result, "zero_optimization.stage3_prefetch_bucket_size").origin ==
          "derived: auto = DeepSpeed's default");
    // DeepSpeed's default would keep small models whole; ours is 0 and says why.
    CHECK(result.config.zero.persistent_parameter_numel == 0);
    CHECK(value_at(result, "zero_optimization.stage3_param_persistence_threshold")
              .origin.starts_with("derived: 0, small parameters"));
    CHECK(result.config.zero.reuse_distance_numel_max == 0);
}

TEST_CASE("dslaunch.shard names how a bucket is dealt, from stage 1 on") {
    const std::vector<std::pair<std::string, ShardBy>> words = {{"flat", ShardBy::kFlat},
                                                                {"layer", ShardBy::kLayer},
                                                                {"group", ShardBy::kGroup},
                                                                {"row", ShardBy::kRow}};
    for (const auto& [word, kind] : words) {
        CAPTURE(word);
        CHECK(shard_by_name(kind) == word);
        for (int64_t stage : {1, 2, 3})
            CHECK(at_stage(stage, "", "shard: " + word).config.zero.shard == kind);
    }
    const Resolved unread = at_stage(0, "", "shard: row");
    CHECK(unread.config.zero.shard == ShardBy::kFlat);
    CHECK(unread.notes ==
          std::vector<std::string>{
              "c:1:53: dslaunch.shard has no effect: read only at ZeRO stages 1 to 3"});
}

TEST_CASE("gradients are reduced once a step at stages 0 and 1, each micro step at 2 and 3") {
    for (int64_t stage : {0, 1}) {
        CHECK(at_stage(stage).config.reduce == ReduceWhen::kOnce);
        CHECK(at_stage(stage, "", "communication: {reduce: micro_step}").config.reduce ==
              ReduceWhen::kMicroStep);
    }
    for (int64_t stage : {2, 3}) {
        const Resolved result = at_stage(stage);
        CHECK(result.config.reduce == ReduceWhen::kMicroStep);
        CHECK(value_at(result, "dslaunch.communication.reduce").origin ==
              "derived: always at ZeRO stages 2 and 3");
    }
}

TEST_CASE("fp16 takes DeepSpeed's defaults of the loss scale, or a fixed one") {
    const PrecisionConfig dynamic = on_two_ranks("{fp16: {enabled: true}}").config.precision;
    CHECK(dynamic.compute == DType::kF16);
    CHECK(dynamic.skip_nonfinite_steps);
    CHECK(dynamic.loss_scale == LossScaleConfig{.dynamic = true,
                                                .initial = 65536,
                                                .minimum = 1,
                                                .window = 1000,
                                                .hysteresis = 2,
                                                .consecutive_hysteresis = false});

    const Resolved fixed =
        on_two_ranks("{fp16: {enabled: true, loss_scale: 128.5, loss_scale_window: 7}}");
    CHECK_FALSE(fixed.config.precision.loss_scale.dynamic);
    CHECK(fixed.config.precision.loss_scale.initial == 128.5);
    CHECK(fixed.config.precision.skip_nonfinite_steps);
    CHECK(fixed.notes ==
          std::vector<std::string>{"c:1:62: fp16.loss_scale_window has no effect: fp16.loss_scale "
                                   "fixes the scale"});
}

TEST_CASE("bf16 has a scale of one and skips steps that are not finite unless told otherwise") {
    const PrecisionConfig plain = on_two_ranks("{bf16: {enabled: true}}").config.precision;
    CHECK(plain.compute == DType::kBF16);
    CHECK(plain.skip_nonfinite_steps);
    CHECK(plain.loss_scale == LossScaleConfig{});
    CHECK_FALSE(on_two_ranks("{bf16: {enabled: true, check_grad_overflow: false}}")
                    .config.precision.skip_nonfinite_steps);
}

TEST_CASE("a section of half precision that is not enabled asks for nothing") {
    for (const char* text :
         {"{}", "{fp16: {enabled: auto}}", "{fp16: {}, bf16: {enabled: false}}",
          "{fp16: {enabled: false, fp16_master_weights_and_grads: true, hysteresis: 0}}",
          "{bf16: {bf16_optimizer_states: true, bf16_master_weights_and_grads: true}}",
          "{torch_autocast: {enabled: false, dtype: float16}, amp: {enabled: false}}"}) {
        CAPTURE(text);
        CHECK(on_two_ranks(text).config.precision == PrecisionConfig{});
    }
}

TEST_CASE("types that ask for what is done anyway are accepted") {
    const Resolved result = on_two_ranks(
        "{bf16: {enabled: true}, communication_data_type: fp32, data_types: {grad_accum_dtype: "
        "fp32, param_dtype: bf16}}");
    CHECK(result.config.precision.compute == DType::kBF16);
    CHECK(value_at(on_two_ranks("{fp16: {enabled: true}}"), "communication_data_type").origin ==
          "derived: gradients travel in fp32");
    CHECK(value_at(on_two_ranks("{fp16: {enabled: true}}"), "data_types.param_dtype").value.text ==
          "fp16");
}

TEST_CASE("gradients keep fp32 where a config asks for fewer bits, and the user reads it") {
    const Resolved result =
        on_two_ranks("{communication_data_type: bf16, data_types: {grad_accum_dtype: fp16}}");
    CHECK(result.notes ==
          std::vector<std::string>{
              "c:1:27: communication_data_type has no effect: gradients travel in fp32 in this "
              "version, with all bits",
              "c:1:64: data_types.grad_accum_dtype has no effect: gradients are summed and kept in "
              "fp32 in this version, with all bits"});
    CHECK(value_at(result, "communication_data_type").value.text == "fp32");
    CHECK(value_at(result, "data_types.grad_accum_dtype").value.text == "fp32");
}
