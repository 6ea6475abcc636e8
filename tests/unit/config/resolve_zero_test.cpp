// ZeRO stages and half precision, from their keys to the run config.

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "resolved.h"
#include "support/catch.h"

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

// Returns the result with its problems.
Resolved unchecked(const std::string& text) {
    ResolveOptions options;
    options.world_size = 2;
    return resolve(parse_config(text, "c"), options);
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
        "zero_optimization.max_live_parameters has no effect: used only at ZeRO stage 3";
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
    // DeepSpeed's default would keep small models whole. Ours is 0, and its origin says why.
    CHECK(result.config.zero.persistent_parameter_numel == 0);
    CHECK(value_at(result, "zero_optimization.stage3_param_persistence_threshold")
              .origin.starts_with("derived: 0: small parameters"));
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
              "c:1:53: dslaunch.shard has no effect: used only at ZeRO stages 1 to 3"});
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
          "{torch_autocast: {enabled: false, dtype: float16}, amp: {enabled: false}}",
          "{amp: {enabled: false, opt_level: O2, keep_batchnorm_fp32: true, loss_scale: x}}",
          "{amp: {enabled: auto, opt_level: auto}}", "{amp: {}}"}) {
        CAPTURE(text);
        CHECK(on_two_ranks(text).config.precision == PrecisionConfig{});
    }
}

TEST_CASE("the levels of Apex compute as the sections that have their meaning") {
    const auto resolved_of = [](const std::string& rest) {
        return on_two_ranks("{amp: {enabled: true" + rest + "}}");
    };
    const PrecisionConfig autocast =
        on_two_ranks("{torch_autocast: {enabled: true, dtype: float16}}").config.precision;
    CHECK(autocast.fp32_weights);
    CHECK(resolved_of("").config.precision == autocast);
    CHECK(resolved_of(", opt_level: O1, loss_scale: dynamic").config.precision == autocast);
    CHECK(resolved_of(", opt_level: O0").config.precision == PrecisionConfig{});
    // Level O2 has the weights of the section fp16, and Apex's own loss scale.
    PrecisionConfig half = on_two_ranks("{fp16: {enabled: true}}").config.precision;
    half.loss_scale = autocast.loss_scale;
    CHECK(resolved_of(", opt_level: O2").config.precision == half);
    half.loss_scale.minimum = 4;
    CHECK(resolved_of(", opt_level: O2, min_loss_scale: 4").config.precision == half);
    half.loss_scale = {.dynamic = false, .initial = 128};
    CHECK(resolved_of(", opt_level: O2, loss_scale: 128.0").config.precision == half);
    half.loss_scale.initial = 1;
    CHECK(resolved_of(", opt_level: O3").config.precision == half);
    CHECK(resolved_of("").notes ==
          std::vector<std::string>{"c:1:17: amp.enabled is torch_autocast in float16 here, with a "
                                   "dynamic loss scale: Apex's level O1"});
    CHECK(
        resolved_of(", opt_level: O3").notes ==
        std::vector<std::string>{"c:1:17: amp.enabled is fp16 with fp32 master weights here, with "
                                 "1 as the loss scale: Apex's level O3"});
    CHECK(resolved_of(", opt_level: O0, verbosity: 2").notes.size() == 2);
}

TEST_CASE("types that ask for what is done anyway are accepted") {
    const Resolved result = on_two_ranks(
        "{bf16: {enabled: true}, communication_data_type: fp32, data_types: {grad_accum_dtype: "
        "fp32, param_dtype: bf16}}");
    CHECK(result.config.precision.compute == DType::kBF16);
    CHECK(value_at(on_two_ranks("{fp16: {enabled: true}}"), "communication_data_type").origin ==
          "derived: gradients are sent without rounding");
    CHECK(value_at(on_two_ranks("{fp16: {enabled: true}}"), "data_types.param_dtype").value.text ==
          "fp16");
}

TEST_CASE("sums of gradients keep fp32 where a config asks for fewer bits, and the user reads it") {
    const Resolved result = on_two_ranks("{data_types: {grad_accum_dtype: fp16}}");
    CHECK(result.notes ==
          std::vector<std::string>{
              "c:1:33: data_types.grad_accum_dtype has no effect: gradients are summed in fp32, "
              "which is more exact and takes more memory"});
    CHECK(value_at(result, "data_types.grad_accum_dtype").value.text == "fp32");
}

TEST_CASE("gradients travel in the type that the config says, divided before as it says") {
    const auto wire_of = [](const std::string& text) {
        const Resolved result = on_two_ranks(text);
        CAPTURE(text);
        CHECK(result.notes.empty());
        return result.config.zero.wire;
    };
    CHECK(wire_of("{}") == WireConfig{});
    CHECK(wire_of("{bf16: {enabled: true}}") == WireConfig{});
    CHECK(wire_of("{communication_data_type: bf16}").gradient_dtype == DType::kBF16);
    const WireConfig divided =
        wire_of("{communication_data_type: fp16, gradient_predivide_factor: 4}");
    CHECK(divided.gradient_dtype == DType::kF16);
    CHECK(divided.predivide_factor == 4);
    CHECK_FALSE(divided.gradient_modules.has_value());
    CHECK(wire_of("{communication_data_type: fp16, prescale_gradients: true}").predivide_factor ==
          0);
    const auto notes_of = [](const std::string& text) { return on_two_ranks(text).notes; };
    CHECK(notes_of("{prescale_gradients: true}") ==
          std::vector<std::string>{"c:1:22: prescale_gradients has no effect: gradients are sent "
                                   "in fp32, where their sums do not overflow"});
    CHECK(notes_of("{communication_data_type: bf16, gradient_predivide_factor: 2, "
                   "gradient_allreduce_op: sum}") ==
          std::vector<std::string>{"c:1:60: gradient_predivide_factor has no effect: with "
                                   "gradient_allreduce_op sum, nothing is divided"});
    CHECK(on_two_ranks("{gradient_allreduce_op: sum}").config.adds_ranks);
    CHECK(notes_of("{seq_parallel_communication_data_type: bf16}").size() == 1);
}

TEST_CASE("ranks that share positions send gradients in a type of their own") {
    const Resolved result = on_two_ranks(
        "{communication_data_type: fp16, seq_parallel_communication_data_type: bf16, dslaunch: "
        "{sequence: {size: 2}}}");
    CHECK(result.config.zero.wire.gradient_dtype == DType::kBF16);
    CHECK(result.notes.size() == 1);
}

TEST_CASE("torch_autocast keeps fp32 weights, and float16 has the loss scale of GradScaler") {
    const PrecisionConfig bf16 = on_two_ranks("{torch_autocast: {enabled: true}}").config.precision;
    CHECK(bf16.compute == DType::kBF16);
    CHECK(bf16.weights() == DType::kF32);
    CHECK_FALSE(bf16.has_masters());
    CHECK_FALSE(bf16.skip_nonfinite_steps);
    CHECK(bf16.loss_scale == LossScaleConfig{});
    for (const char* dtype : {"float16", "fp16"}) {
        const Resolved result =
            on_two_ranks(fmt::format("{{torch_autocast: {{enabled: true, dtype: {}}}}}", dtype));
        const PrecisionConfig fp16 = result.config.precision;
        CHECK(fp16.compute == DType::kF16);
        CHECK(fp16.skip_nonfinite_steps);
        CHECK(fp16.loss_scale.initial == 65536);
        CHECK(fp16.loss_scale.window == 2000);
        CHECK(fp16.loss_scale.hysteresis == 1);
        CHECK(fp16.loss_scale.grows_in_window);
        CHECK(value_at(result, "data_types.param_dtype").value.text == "fp32");
        const WireConfig& wire = result.config.zero.wire;
        CHECK(wire.gradient_dtype == DType::kF16);
        CHECK(wire.gradient_modules->size() == 4);
        CHECK(wire.gradient_modules->front() == "torch.nn.Linear");
    }
    const WireConfig named = on_two_ranks(
                                 "{torch_autocast: {enabled: true, "
                                 "lower_precision_safe_modules: [mine.Gate]}}")
                                 .config.zero.wire;
    CHECK(named.gradient_modules == std::vector<std::string>{"mine.Gate"});
    const WireConfig none = on_two_ranks(
                                "{torch_autocast: {enabled: true, "
                                "lower_precision_safe_modules: []}}")
                                .config.zero.wire;
    CHECK(none == WireConfig{});
}

TEST_CASE(
    "values in fewer bits between hosts, and copies on hosts, resolve at the stages that have "
    "them") {
    const auto wire_at = [](int64_t stage, const std::string& more, const std::string& own = "") {
        return at_stage(stage, more, own).config.zero.wire;
    };
    WireConfig all;
    all.parameters = all.frozen = all.gradients = WireChoice::kOn;
    all.error_feedback = true;
    all.host_copy_ranks = 2;
    CHECK(wire_at(3,
                  "zero_quantized_weights: true, zero_quantized_nontrainable_weights: true, "
                  "zero_quantized_gradients: true, zero_hpz_partition_size: 2",
                  "communication: {error_feedback: true}") == all);
    CHECK(wire_at(3, "") == WireConfig{});
    CHECK(wire_at(1, "zero_quantized_gradients: true").gradients == WireChoice::kOn);

    const WireConfig measured =
        wire_at(3,
                "zero_quantized_weights: auto, zero_quantized_gradients: auto, "
                "zero_hpz_partition_size: auto");
    CHECK(measured.parameters == WireChoice::kAuto);
    CHECK(measured.gradients == WireChoice::kAuto);
    CHECK(measured.host_copy_ranks == 0);
    const WireConfig below =
        wire_at(1,
                "zero_quantized_weights: auto, zero_quantized_gradients: auto, "
                "zero_hpz_partition_size: auto");
    CHECK(below.parameters == WireChoice::kOff);
    CHECK(below.gradients == WireChoice::kAuto);
    CHECK(below.host_copy_ranks == 1);
}

TEST_CASE("combinations of fewer bits that make no sense are refused by name") {
    struct Row {
        int64_t stage;
        std::string zero;
        std::string own;
        std::string path;
        std::string words;
    };
    const std::string weights = "zero_optimization.zero_quantized_weights";
    const std::string gradients = "zero_optimization.zero_quantized_gradients";
    const std::string copy = "zero_optimization.zero_hpz_partition_size";
    const std::string feedback = "dslaunch.communication.error_feedback";
    const std::vector<Row> rows = {
        {2, "zero_quantized_weights: true", "", weights, "gathered in place"},
        {0, "zero_quantized_gradients: true", "", gradients, "rounded twice"},
        {3, "zero_quantized_gradients: true, mics_shard_size: 2", "", gradients, "mics_shard_size"},
        {3, "zero_quantized_weights: true, mics_shard_size: 2", "", weights, "mics_shard_size"},
        {2, "zero_hpz_partition_size: 2", "", copy, "use stage 3"},
        {3, "zero_hpz_partition_size: 2, mics_shard_size: 2", "", copy, "use only one of the two"},
        {3, "zero_hpz_partition_size: 2, offload_param: {device: nvme, nvme_path: /tmp}", "", copy,
         "offload_param keeps them on disk"},
        {3, "", "communication: {error_feedback: true}", feedback, "which is not enabled"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.zero, row.own);
        const Resolved result =
            unchecked(fmt::format("{{zero_optimization: {{stage: {}, {}}}, dslaunch: {{{}}}}}",
                                  row.stage, row.zero, row.own));
        REQUIRE(result.problems.size() == 1);
        CHECK(result.problems[0].path == row.path);
        CHECK(result.problems[0].message.find(row.words) != std::string::npos);
    }
    const Resolved scaled = unchecked(
        "{zero_optimization: {stage: 3, zero_quantized_gradients: true}, fp16: {enabled: true}, "
        "dslaunch: {communication: {error_feedback: true}}}");
    REQUIRE(scaled.problems.size() == 1);
    CHECK(scaled.problems[0].message.find("loss scale") != std::string::npos);
    const Resolved gpu = unchecked(
        "{zero_optimization: {stage: 3, zero_quantized_weights: true}, dslaunch: {device: cuda}}");
    REQUIRE(gpu.problems.size() == 1);
    CHECK(gpu.problems[0].path == weights);
}

TEST_CASE("the logger of communication knows operations by our names and by DeepSpeed's") {
    const auto logger = [](const std::string& text) {
        return unchecked("{comms_logger: {enabled: true, " + text + "}}");
    };
    CHECK(on_two_ranks("{}").config.comms_logger == CommsLoggerConfig{});
    CHECK(logger("verbose: true, debug: true").config.comms_logger ==
          CommsLoggerConfig{true, true, true, {}});
    CHECK(logger("prof_all: false, prof_ops: [all_reduce, gather, reduce_scatter_tensor]")
              .config.comms_logger.kinds ==
          std::vector<TrafficKind>{TrafficKind::kReduce, TrafficKind::kGather});
    // If prof_all is on, all operations are logged.
    CHECK(logger("prof_ops: [all_reduce]").config.comms_logger.kinds.empty());
    // A log without operations is empty, and names of a script's own are not a mistake, as in
    // DeepSpeed.
    for (const char* text : {"prof_all: false", "prof_all: false, prof_ops: []",
                             "prof_all: false, prof_ops: [custom_all_reduce_name]"}) {
        const Resolved nothing = logger(text);
        CAPTURE(text);
        CHECK(nothing.problems.empty());
        CHECK_FALSE(nothing.config.comms_logger.enabled);
        REQUIRE_FALSE(nothing.notes.empty());
        CHECK(nothing.notes.front().find("comms_logger") != std::string::npos);
    }
    const Resolved wrong = logger("prof_ops: [al_reduce]");
    REQUIRE(wrong.problems.size() == 1);
    CHECK(wrong.problems[0].message ==
          "`al_reduce` is not an operation, did you mean `all_reduce`?");
}
