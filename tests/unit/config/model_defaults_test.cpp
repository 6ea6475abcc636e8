// The settings that the model decides if the config says nothing.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "config/resolve/resolve.h"
#include "support/catch.h"

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
    // A type that is switched off is not a choice.
    CHECK(resolved_for("{fp16: {enabled: false}}", DType::kBF16).config.precision.compute ==
          DType::kBF16);
    for (const char* named :
         {"{bf16: {enabled: false}}", "{bf16: {enabled: true}}", "{fp16: {enabled: true}}",
          "{torch_autocast: {enabled: true}}", "{data_types: {param_dtype: fp32}}"})
        CHECK(resolved_for(named, DType::kBF16).notes.empty());
    CHECK(resolved_for("{bf16: {enabled: false}}", DType::kBF16).config.precision.compute ==
          DType::kF32);
    // fp16 skips steps until it has found a scale, so it is used only if a config asks for it.
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
    CHECK_THAT(silent.notes[0], Catch::Contains("as in transformers' Trainer"));
    const auto line = std::ranges::find(silent.values, "dslaunch.loss.mean", &ResolvedValue::path);
    REQUIRE(line != silent.values.end());
    CHECK(line->value.text == "token");
    CHECK_THAT(line->origin, Catch::Contains("Hugging Face"));
    const Resolved told = folder("{dslaunch: {loss: {mean: micro_batch}}}");
    CHECK(told.config.loss.mean == LossMean::kMicroBatch);
    CHECK(told.notes.empty());
    // A cross entropy in the config means the model's own loss.
    const Resolved named =
        folder("{dslaunch: {loss: {name: cross_entropy, target: labels, mean: token}}}");
    CHECK(named.config.loss.kind == LossKind::kModel);
    CHECK(named.config.loss.mean == LossMean::kToken);
    CHECK(named.config.data.columns.at("targets") == "labels");
    CHECK(folder("{gradient_allreduce_op: sum}").config.loss.mean == LossMean::kMicroBatch);
    CHECK(folder("{dslaunch: {loss: {name: dpo}}}").config.loss.mean == LossMean::kMicroBatch);
    CHECK(resolve(parse_config("{}", "c")).config.loss.mean == LossMean::kMicroBatch);
}

Resolved tuned(const std::string& text, ResolveOptions options = {}) {
    if (!options.world_size) options.world_size = 1;
    options.model_dtype = DType::kF32;
    options.model_is_folder = options.is_pretrained = true;
    Resolved result = resolve(parse_config(text, "c"), options);
    CHECK(result.problems.empty());
    return result;
}

const ResolvedValue& value_of(const Resolved& result, const std::string& path) {
    const auto found = std::ranges::find(result.values, path, &ResolvedValue::path);
    REQUIRE(found != result.values.end());
    return *found;
}

constexpr const char* kAdapters = "{dslaunch: {lora: {r: 8}}}";
constexpr const char* kPairs = "{dslaunch: {loss: {name: dpo}}}";
constexpr const char* kBoth = "{dslaunch: {lora: {r: 8}, loss: {name: orpo}}}";

// The rates come from TRL 1.16: scripts/sft.py (2.0e-5, and 2.0e-4 with adapters) and DPOConfig
// (1e-6, and ten times that with adapters, as its documentation says). 1.0 and 8 come from
// TrainingArguments.
TEST_CASE("a pretrained model is tuned with the usual rate, clipping and batch") {
    const std::pair<const char*, double> rates[] = {{"{}", 2e-5},
                                                    {kAdapters, 2e-4},
                                                    {kPairs, 1e-6},
                                                    {kBoth, 1e-5},
                                                    {"{optimizer: {type: Adam}}", 2e-5}};
    for (const auto& [text, rate] : rates) {
        CAPTURE(text);
        const Resolved result = tuned(text);
        CHECK(result.config.optimizer.lr == Approx(rate).epsilon(1e-12));
        CHECK(result.config.gradient_clipping == 1.0);
        CHECK(result.config.batch.train_rows == 8);
        CHECK(result.warnings.empty());
        CHECK_THAT(value_of(result, "optimizer.params.lr").origin,
                   Catch::StartsWith("derived: usual"));
        CHECK_THAT(result.chosen,
                   Catch::Contains(fmt::format("lr {:.3g}, usual for", rate)) &&
                       Catch::Contains("(--lr)") && Catch::Contains("clipped at norm 1") &&
                       Catch::Contains("8 rows per step (--micro-batch, --accumulation)"));
        // The printed text is a config of the same run.
        CHECK(tuned(config_text(result)).config == result.config);
    }
    // Other models keep their defaults.
    const Resolved scratch = resolve(parse_config("{}", "c"), {.world_size = 1});
    CHECK(scratch.config.optimizer.lr == 1e-3);
    CHECK(scratch.config.gradient_clipping == 0.0);
    CHECK(scratch.config.batch == BatchConfig{});
}

TEST_CASE("what is named, and auto, is not the usual number") {
    const Resolved named = tuned(
        "{optimizer: {type: AdamW, params: {lr: 3e-5}}, gradient_clipping: 0, train_batch_size: "
        "3}");
    CHECK(named.config.optimizer.lr == 3e-5);
    CHECK(named.config.gradient_clipping == 0.0);
    CHECK(named.config.batch.train_rows == 3);
    CHECK_THAT(named.chosen, !Catch::Contains("lr") && !Catch::Contains("rows"));
    CHECK(tuned("{train_micro_batch_size_per_gpu: 2}").config.batch.train_rows == 2);
    CHECK(tuned("{gradient_accumulation_steps: 4}").config.batch.train_rows == 4);
    const Resolved autos = tuned(
        "{optimizer: {type: AdamW, params: {lr: auto}}, gradient_clipping: auto, "
        "train_micro_batch_size_per_gpu: auto}",
        {.world_size = 2});
    CHECK(autos.config.optimizer.lr == 5e-5);
    CHECK(autos.config.batch.train_rows == 16);
    // A schedule's own rate is used. Another optimizer has its own default rate.
    CHECK_THAT(tuned("{scheduler: {type: WarmupLR, params: {warmup_max_lr: 3e-5}}}").chosen,
               !Catch::Contains("lr"));
    CHECK(tuned("{optimizer: {type: SGD}}").config.optimizer.lr == 1e-3);
    TrainConfig override = empty_config();
    apply_override(override, "optimizer.params.lr=7e-5", "--lr");
    CHECK(resolve(override, {.world_size = 1, .is_pretrained = true}).config.optimizer.lr == 7e-5);
}

TEST_CASE("the usual batch hangs on ranks and lengths, and not on the machine") {
    struct Row {
        int64_t ranks = 1;
        std::optional<int64_t> tokens, samples;
        BatchConfig batch;
    };
    const Row rows[] = {
        {1, {}, {}, {8, 1, 8, 1}},     {1, 64, {}, {8, 8, 1, 1}},    {1, 128, {}, {8, 8, 1, 1}},
        {1, 129, {}, {8, 4, 2, 1}},    {1, 512, {}, {8, 2, 4, 1}},   {1, 1024, {}, {8, 1, 8, 1}},
        {1, 40'000, {}, {8, 1, 8, 1}}, {2, 64, {}, {8, 4, 1, 2}},    {3, 64, {}, {9, 3, 1, 3}},
        {8, 64, {}, {8, 1, 1, 8}},     {12, 64, {}, {12, 1, 1, 12}}, {1, 64, 5, {5, 5, 1, 1}},
        {2, 512, 5, {6, 1, 3, 2}},     {1, 64, 100, {8, 8, 1, 1}}};
    for (const Row& row : rows) {
        CAPTURE(row.ranks, row.tokens.value_or(0), row.samples.value_or(0));
        ResolveOptions options{.world_size = row.ranks};
        options.sample_tokens = row.tokens;
        options.samples = row.samples;
        CHECK(tuned("{}", options).config.batch == row.batch);
    }
    CHECK(tuned("{dslaunch: {data: {context: 512}}}").config.batch == BatchConfig{8, 2, 4, 1});
    // Ranks that share a copy of the model share its rows too.
    const std::string stages = "{dslaunch: {data: {context: 64}, pipeline: {stages: 2}}}";
    CHECK(tuned(stages, {.world_size = 2}).config.batch == BatchConfig{8, 1, 8, 1});
    CHECK(tuned(stages, {.world_size = 4}).config.batch == BatchConfig{8, 1, 4, 2});
}

TEST_CASE("a rate far above the usual one is warned of") {
    const auto warning = [](const std::string& text) {
        const Resolved result = tuned(text);
        return result.warnings.empty() ? "" : result.warnings.front();
    };
    const auto of_rate = [&](double rate, const std::string& more) {
        return warning(
            fmt::format("{{optimizer: {{type: AdamW, params: {{lr: {}}}}}{}}}", rate, more));
    };
    const std::string lora = ", dslaunch: {lora: {r: 8}}";
    CHECK_THAT(of_rate(1e-3, ""), Catch::Contains("a learning rate of 0.001 is 50 times the usual "
                                                  "rate for all weights of a pretrained model") &&
                                      Catch::Contains("--lr 2e-05"));
    CHECK(of_rate(2e-4, "").empty());
    CHECK_FALSE(of_rate(2.1e-4, "").empty());
    CHECK(of_rate(2e-3, lora).empty());
    CHECK_THAT(of_rate(3e-3, lora), Catch::Contains("for adapters of a pretrained model"));
    CHECK_THAT(of_rate(5e-5, ", dslaunch: {loss: {name: dpo}}"),
               Catch::Contains("with the loss dpo"));
    // Schedules and groups have rates of their own. DeepSpeed's default does not count as a rate
    // here.
    const Resolved decay = tuned(
        "{scheduler: {type: WarmupDecayLR, params: {total_num_steps: 9, warmup_num_steps: 2}}}");
    CHECK(decay.config.scheduler.warmup_max_lr == 2e-5);
    CHECK(decay.warnings.empty());
    const std::string low = "optimizer: {type: AdamW, params: {lr: 2e-5}}, ";
    CHECK_THAT(warning("{" + low + "scheduler: {type: WarmupLR, params: {warmup_max_lr: 0.001}}}"),
               Catch::Contains("the usual rate is --set scheduler.params.warmup_max_lr=2e-05"));
    CHECK_FALSE(
        warning("{" + low +
                "scheduler: {type: OneCycle, params: {cycle_min_lr: 1e-6, cycle_max_lr: 0.01}}}")
            .empty());
    CHECK_FALSE(
        warning("{" + low + "dslaunch: {optimizer: {groups: [{match: a, lr: 0.001}]}}}").empty());
    CHECK(warning("{" + low + "scheduler: {type: LRRangeTest}}").empty());
    CHECK(warning("{optimizer: {type: SGD, params: {lr: 0.1}}}").empty());
    CHECK(resolve(parse_config("{optimizer: {type: AdamW, params: {lr: 0.001}}}", "c"))
              .warnings.empty());
}

TEST_CASE("a context is taken where none is named, and its reason is told") {
    ResolveOptions options;
    options.context = 1024;
    options.context_reason = "of the model's 8192 positions, 1024 at most";
    const Resolved silent = tuned("{}", options);
    CHECK(silent.config.data.context == 1024);
    CHECK_THAT(silent.chosen, Catch::Contains("1024 tokens per sample: of the model's 8192"));
    CHECK(tuned("{dslaunch: {data: {context: 32}}}", options).config.data.context == 32);
}

}  // namespace
