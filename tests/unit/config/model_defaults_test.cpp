// What a config that says nothing takes from the model.
#include "config/resolve/resolve.h"
#include "support/catch.h"

#include <algorithm>
#include <string>

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

TEST_CASE("bf16 weights are trained as they are where nothing names a type") {
    const auto resolved_for = [](const std::string& text, DType weights) {
        const Resolved result = resolve(parse_config(text, "c"), {.model_dtype = weights});
        CHECK(result.problems.empty());
        return result;
    };
    const Resolved silent = resolved_for("{}", DType::kBF16);
    CHECK(silent.config.precision.compute == DType::kBF16);
    CHECK(silent.config.precision.has_masters());
    REQUIRE(silent.notes.size() == 1);
    CHECK_THAT(silent.notes[0], Catch::Contains("are trained in bf16"));
    CHECK(resolve(parse_config(config_text(silent), "again")).config == silent.config);
    // A type that is off names none.
    CHECK(resolved_for("{fp16: {enabled: false}}", DType::kBF16).config.precision.compute ==
          DType::kBF16);
    for (const char* named :
         {"{bf16: {enabled: false}}", "{bf16: {enabled: true}}", "{fp16: {enabled: true}}",
          "{torch_autocast: {enabled: true}}", "{data_types: {param_dtype: fp32}}"})
        CHECK(resolved_for(named, DType::kBF16).notes.empty());
    CHECK(resolved_for("{bf16: {enabled: false}}", DType::kBF16).config.precision.compute ==
          DType::kF32);
    // fp16 skips steps until it has found a scale, which is to be asked for.
    const Resolved half = resolved_for("{}", DType::kF16);
    CHECK(half.config.precision.compute == DType::kF32);
    REQUIRE(half.notes.size() == 1);
    CHECK_THAT(half.notes[0], Catch::Contains("are trained in fp32") && Catch::Contains("--fp16"));
    CHECK(resolved_for("{}", DType::kF32).notes.empty());
}

TEST_CASE("a folder's loss is a mean over the global batch unless the config says another") {
    const auto folder = [](const std::string& text) {
        const Resolved result =
            resolve(parse_config(text, "c"), {.model_dtype = DType::kF32, .model_is_folder = true});
        CHECK(result.problems.empty());
        return result;
    };
    const Resolved silent = folder("{}");
    CHECK(silent.config.loss.mean == LossMean::kToken);
    CHECK(silent.config.loss.kind == LossKind::kModel);
    REQUIRE(silent.notes.size() == 1);
    CHECK_THAT(silent.notes[0], Catch::Contains("as transformers' Trainer has it"));
    const auto line = std::ranges::find(silent.values, "dslaunch.loss.mean", &ResolvedValue::path);
    REQUIRE(line != silent.values.end());
    CHECK(line->value.text == "token");
    CHECK_THAT(line->origin, Catch::Contains("Hugging Face"));
    const Resolved told = folder("{dslaunch: {loss: {mean: micro_batch}}}");
    CHECK(told.config.loss.mean == LossMean::kMicroBatch);
    CHECK(told.notes.empty());
    // The cross entropy of the config is the model's own.
    const Resolved named =
        folder("{dslaunch: {loss: {name: cross_entropy, target: labels, mean: token}}}");
    CHECK(named.config.loss.kind == LossKind::kModel);
    CHECK(named.config.loss.mean == LossMean::kToken);
    CHECK(named.config.data.columns.at("targets") == "labels");
    CHECK(folder("{gradient_allreduce_op: sum}").config.loss.mean == LossMean::kMicroBatch);
    CHECK(folder("{dslaunch: {loss: {name: dpo}}}").config.loss.mean == LossMean::kMicroBatch);
    CHECK(resolve(parse_config("{}", "c")).config.loss.mean == LossMean::kMicroBatch);
}

}  // namespace
