// Keys that the schema does not have. Some are errors, some warnings, some notes; each message
// names a known key or a reason.
#include <fmt/core.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/foreign/foreign_names.h"
#include "base/text.h"
#include "config/schema/schema.h"
#include "resolved.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;

TEST_CASE("ignored names that speak of the training are warnings with the right key") {
    const struct {
        const char* name;
        const char* value;
        const char* meant;
    } cases[] = {{"learning_rate", "1e-3", "optimizer.params.lr"},
                 {"learningRate", "1e-3", "optimizer.params.lr"},
                 {"zero", "{stage: 3}", "zero_optimization.stage"},
                 {"zero_stage", "3", "zero_optimization.stage"},
                 {"stage", "3", "zero_optimization.stage"},
                 {"gradient_clip", "0.5", "gradient_clipping"},
                 {"clip_grad_norm", "0.5", "gradient_clipping"},
                 {"max_steps", "3", "dslaunch.steps"},
                 {"num_train_epochs", "3", "dslaunch.epochs"},
                 {"train_micro_batch_size", "4", "train_micro_batch_size_per_gpu"},
                 {"batch_size", "4", "train_batch_size"},
                 {"adapter", "qlora", "dslaunch.lora"},
                 {"load_in_4bit", "true", "dslaunch.lora.base"},
                 {"mixed_precision", "bf16", "bf16.enabled"},
                 {"lr_scheduler", "cosine", "scheduler.type"},
                 {"offload_optimizer", "{device: cpu}", "zero_optimization.offload_optimizer"},
                 {"training", "{a: [{max_steps: 3}]}", "dslaunch.steps"},
                 {"fp8", "{enabled: true}", "bf16.enabled"},
                 {"train_batch", "8", "train_batch_size"},
                 {"quantize_weights", "true", "dslaunch.lora.base"},
                 {"moe", "{enabled: true}", ""},
                 {"data_of_mine", "x", ""}};
    for (const auto& [name, value, meant] : cases) {
        const Resolved result = resolved(fmt::format("{{{}: {}}}", name, value), 1);
        CAPTURE(name, result.notes);
        REQUIRE(result.warnings.size() == 1);
        CHECK(result.warnings.front().find(fmt::format(
                  "c:1:{}: {} is unknown and ignored, as in DeepSpeed", strlen(name) + 4, name)) ==
              0);
        CHECK(result.warnings.front().find(*meant == '\0' ? "" : fmt::format("`{}`", meant)) !=
              std::string::npos);
    }
    // If another key is refused, unknown keys are reported as problems too.
    const Resolved both =
        resolve(parse_config("{gradient_cliping: 1, learning_rate: 1, max_steps: 3}", "c"), {});
    CHECK(both.problems.size() == 3);
    CHECK(both.warnings.empty());
    for (const char* recipe :
         {"{base_model: tiny, adapter: qlora, load_in_4bit: true, datasets: [{path: c}]}",
          "{model_name_or_path: tiny, stage: sft, finetuning_type: lora}"}) {
        const Resolved refused = resolve(parse_config(recipe, "c"), {});
        REQUIRE(refused.problems.size() == 1);
        CHECK(refused.problems.front().message.find("recipe of axolotl") != std::string::npos);
    }
    const Resolved model = resolve(
        parse_config(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})", "c"), {});
    REQUIRE(model.problems.size() == 1);
    CHECK_THAT(model.problems.front().message, Catch::Contains("the config.json of a model"));
    const Resolved place = resolve(parse_config("{dslaunch: {data: {folder: x}}}", "c"), {});
    REQUIRE(place.problems.size() == 1);
    CHECK_THAT(place.problems.front().message,
               Catch::Contains("the keys of `dslaunch.data` are ") && Catch::Contains("train"));
    const Resolved decay = resolve(
        parse_config("{optimizer: {type: AdamW, params: {lr: 0.001, weight_decay: 10}}}", "c"), {});
    REQUIRE(decay.warnings.size() == 1);
    CHECK_THAT(
        decay.warnings.front(),
        Catch::Contains(
            "with a learning rate of 0.001, each step shrinks every weight by the fraction 0.01"));
    for (const auto& [set, meant] : {std::pair{"learning_rate=1e-4", "optimizer.params.lr"},
                                     {"training.max_steps=3", "dslaunch.steps"},
                                     {"weight_decay=0.1", "optimizer.params.weight_decay"}}) {
        TrainConfig config = parse_config("{train_batch_size: 2}", "c");
        apply_override(config, set);
        const Resolved refused = resolve(config, {});
        CAPTURE(set);
        REQUIRE(refused.problems.size() == 1);
        CHECK(refused.problems.front().message.find(fmt::format("did you mean `{}`", meant)) !=
              std::string::npos);
    }
}

TEST_CASE("a suggested key can have the value, and is in the same section if one fits there") {
    const auto message = [](const char* text) {
        const Resolved refused = resolve(parse_config(text, "c"), {});
        INFO(text);
        REQUIRE(refused.problems.size() == 1);
        return refused.problems.front().message;
    };
    for (const char* name : {"decay", "wd", "weight_decy"})
        CHECK_THAT(
            message(
                fmt::format("{{optimizer: {{type: AdamW, params: {{{}: 0.1}}}}}}", name).c_str()),
            Catch::Contains("did you mean `weight_decay`?"));
    CHECK_THAT(message("{optimizer: {type: AdamW, params: {qq: 0.1}}}"),
               !Catch::Contains("did you mean"));
    // The only key of the section with this word, and no key elsewhere of another type.
    CHECK_THAT(message("{dslaunch: {data: {fraction: 0.1}}}"),
               Catch::Contains("did you mean `eval_fraction`?"));
    for (const char* name : {"output", "output_dir"})
        CHECK_THAT(message(fmt::format("{{dslaunch: {{{}: x}}}}", name).c_str()),
                   Catch::Contains("on the command line: -o DIR"));
    CHECK_THAT(message("{dslaunch: {logging_steps: 5}}"), Catch::Contains("`steps_per_print`"));
}

TEST_CASE("a config whose settings are inside another key, or another file, is refused") {
    const auto problems = [](const char* text) {
        return resolve(parse_config(text, "c"), {}).problems;
    };
    const auto wrapped =
        problems("{deepspeed: {train_batch_size: 4, zero_optimization: {stage: 2}}, note: 1}");
    REQUIRE(wrapped.size() == 1);
    CHECK(wrapped.front().path == "deepspeed");
    CHECK_THAT(wrapped.front().message,
               Catch::Contains("move `train_batch_size`, `zero_optimization` to the top level, by "
                               "removing `deepspeed`"));
    const auto adapter = problems("{peft_type: LORA, r: 8, lora_alpha: 16}");
    REQUIRE(adapter.size() == 1);
    CHECK_THAT(adapter.front().message, Catch::Contains("the adapter_config.json of an adapter"));
    CHECK(problems("{train_batch_size: 4, mine: {zero_optimization: {stage: 2}}}").empty());
}

TEST_CASE("a batch that no number of ranks fits is refused without a number of ranks") {
    for (const char* text : {"{train_batch_size: 7, train_micro_batch_size_per_gpu: 2}",
                             "{train_batch_size: 7, gradient_accumulation_steps: 2}"}) {
        const Resolved refused = resolve(parse_config(text, "c"), {});
        INFO(text);
        REQUIRE(refused.problems.size() == 1);
        CHECK_THAT(refused.problems.front().message,
                   Catch::StartsWith("7 is not a multiple of ") &&
                       Catch::EndsWith(" = 2: no number of ranks fits"));
    }
    CHECK(resolve(parse_config("{train_batch_size: 8, train_micro_batch_size_per_gpu: 2}", "c"), {})
              .problems.empty());
}

TEST_CASE("each name in the table of foreign names leads to a key that there is") {
    std::set<std::pair<std::string_view, std::string_view>> names;
    for (const ForeignName& foreign : foreign_names()) {
        CAPTURE(foreign.name);
        CHECK(names.insert({foreign.name, foreign.command}).second);
        CHECK(folded_name(foreign.name) == foreign.name);
        CHECK((foreign.key.empty() || find_key(foreign.key) != nullptr));
    }
}

TEST_CASE("what DeepSpeed ignores or only watches with is one note each, never the end") {
    const Resolved result = resolved(
        "{_comment: mine, who_made_it: x, tensorboard: {enabled: true, output_path: /t, "
        "job_name: j}, wandb: {enabled: false, project: p}, csv_monitor: {}, "
        "dump_state: true, msamp: {enabled: true}, "
        "offload_optimizer: "
        "{device: cpu}}",
        1);
    std::string all;
    for (const std::string& note : result.notes) all += note + "\n";
    INFO(all);
    CHECK(result.notes.size() == 2);
    CHECK(result.warnings.size() == 1);
    for (const char* words :
         {"_comment, who_made_it, msamp are unknown and ignored, as in DeepSpeed",
          "dump_state has no effect: "})
        CHECK(all.find(words) != std::string::npos);
    // A name that differs from a known one by a letter or two is a mistake. In a section, every
    // other unknown name is a mistake too.
    for (const char* text : {"{zero_optimisation: {}}", "{fp16: {_note: x}}",
                             "{train_batchsize: 3}", "{gradient_cliping: 1}"})
        CHECK_FALSE(resolve(parse_config(text, "c"), {}).problems.empty());
}

TEST_CASE("keys of the section pipeline that DeepSpeed does not know are notes") {
    const Resolved config =
        resolved("{pipeline: {enabled: false, activation_checkpointing: true, stages: 1}}", 1);
    CHECK(config.notes ==
          std::vector<std::string>{"c:1:22: pipeline.enabled, pipeline.activation_checkpointing "
                                   "are unknown and ignored, as in DeepSpeed"});
}
