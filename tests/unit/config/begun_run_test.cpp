// The settings that a resumed run takes over from the run that it continues.
#include "config/resolve/begun_run.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "config/resolve/resolve.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

const ResolveOptions kTuning{
    .world_size = 2, .model_dtype = DType::kF32, .model_is_folder = true, .is_pretrained = true};

// Returns the run of TEXT, as this version resolves it or as a version without usual numbers did.
std::string run_of(const std::string& text, bool is_former) {
    ResolveOptions options = kTuning;
    options.is_pretrained = !is_former;
    options.samples = 100;
    const Resolved result = resolve(parse_config(text, "c"), options);
    REQUIRE(result.problems.empty());
    return resolved_json(result);
}

Resolved resumed(const std::string& json, const std::string& text = "{}", int64_t ranks = 2) {
    TrainConfig config = parse_config(text, "c");
    take_begun(config, begun_values(json), true);
    ResolveOptions options = kTuning;
    options.world_size = ranks;
    options.samples = 100;
    Resolved result = resolve(config, options);
    INFO(text);
    for (const Problem& problem : result.problems) UNSCOPED_INFO(problem.text());
    REQUIRE(result.problems.empty());
    return result;
}

TEST_CASE("a run of a former version goes on with the numbers that it began with") {
    const std::string former = run_of("{dslaunch: {steps: 130}}", true);
    const Resolved result = resumed(former);
    CHECK(result.config.optimizer.lr == 1e-3);
    CHECK(result.config.gradient_clipping == 0.0);
    CHECK(result.config.batch == BatchConfig{2, 1, 1, 2});
    CHECK(result.config.steps == 130);
    CHECK_THAT(result.chosen, Catch::Contains("from the resumed run: ") &&
                                  Catch::Contains("optimizer.params.lr 0.001"));
    // One row for each rank, as before.
    CHECK(resumed(former, "{}", 3).config.batch == BatchConfig{3, 1, 1, 3});
    // The run.json that contains it.
    CHECK(begun_values("{\"exit_code\": 0, \"run\": {\"config\": " + former + "}}") ==
          begun_values(former));
    for (const char* text : {"", "[]", "{}", "{\"run\": null}", "not json: [",
                             R"({"values": [1, {"path": 3}, {"path": "a", "value": {}}]})"})
        CHECK(begun_values(text).empty());
}

TEST_CASE("what a command names counts more than what the run began with") {
    const std::string former = run_of(
        "{train_batch_size: 4, optimizer: {type: AdamW, params: {lr: 3e-4}}, "
        "dslaunch: {epochs: 2}}",
        true);
    CHECK(resumed(former).config.steps == 50);
    CHECK(resumed(former).config.epochs == 2.0);
    CHECK(resumed(former).config.optimizer.lr == 3e-4);
    CHECK(resumed(former).config.batch.train_rows == 4);
    const Resolved named =
        resumed(former,
                "{train_micro_batch_size_per_gpu: 3, optimizer: {type: AdamW, params: {lr: 1e-5}}, "
                "gradient_clipping: 0.5, dslaunch: {steps: 7}}");
    CHECK(named.config.steps == 7);
    CHECK(named.config.epochs == 0.0);
    CHECK(named.config.optimizer.lr == 1e-5);
    CHECK(named.config.gradient_clipping == 0.5);
    CHECK(named.config.batch.train_rows == 6);
    CHECK(resumed(former, "{optimizer: {type: AdamW, params: {lr: auto}}}").config.optimizer.lr ==
          5e-5);
    CHECK(resumed(former, "{optimizer: {params: {max_grad_norm: 2}, type: AdamW}}")
              .config.gradient_clipping == 2.0);
    // A model of another kind keeps its own defaults, except for the steps.
    TrainConfig archive = empty_config();
    take_begun(archive, begun_values(former), false);
    const Resolved kept = resolve(archive, {.world_size = 2, .samples = 100});
    CHECK(kept.config.optimizer.lr == 1e-3);
    CHECK(kept.config.epochs == 2.0);
}

TEST_CASE("a run of this version has the same numbers when it is resumed") {
    for (const char* text :
         {"{}", "{dslaunch: {lora: {r: 4}}}", "{dslaunch: {loss: {name: dpo}}}"}) {
        CAPTURE(text);
        const std::string json = run_of(text, false);
        ResolveOptions options = kTuning;
        options.samples = 100;
        const Resolved begun = resolve(parse_config(text, "c"), options);
        RunConfig expected = begun.config;
        CHECK(resumed(json, text).config == expected);
        CHECK(begun_otherwise(resumed(json, text), json).empty());
        // With another number of ranks, the batch follows its own rule.
        CHECK(resumed(json, text, 4).config.batch.train_rows == 8);
    }
}

TEST_CASE("numbers that would change in silence are found where run.json was not seen") {
    const std::string former = run_of("{dslaunch: {steps: 130}}", true);
    ResolveOptions options = kTuning;
    const Resolved silent = resolve(parse_config("{}", "c"), options);
    CHECK(begun_otherwise(silent, former) ==
          std::vector<std::string>{"--set optimizer.params.lr=0.001", "--set gradient_clipping=0",
                                   "--set train_batch_size=2"});
    const Resolved named =
        resolve(parse_config("{optimizer: {type: AdamW, params: {lr: 2e-5}}, gradient_clipping: 1, "
                             "train_batch_size: 8}",
                             "c"),
                options);
    CHECK(begun_otherwise(named, former).empty());
    CHECK(begun_otherwise(silent, "").empty());
}

}  // namespace

TEST_CASE("other adapters than those of the run that is resumed are named as --lora takes them") {
    const auto lora_in = [](const std::string& text) {
        return resolve(parse_config(text, "c"), kTuning).config.lora;
    };
    const std::string with = "{dslaunch: {lora: {r: 4, alpha: 8, targets: [a, b]}}}";
    const std::string json = run_of(with, false), without = run_of("{}", false);
    CHECK(other_lora_text(lora_in(with), json).empty());
    CHECK(other_lora_text(lora_in("{}"), without).empty());
    CHECK(other_lora_text(lora_in("{}"), json) ==
          "its run trained adapters with r=4,alpha=8,targets=a,b, but --lora is not given: use "
          "--lora 'r=4,alpha=8,targets=a,b'");
    // The same tensors, but with another effect.
    CHECK(other_lora_text(lora_in("{dslaunch: {lora: {r: 4, targets: [a, b]}}}"), json) ==
          "its run trained adapters with r=4,alpha=8,targets=a,b, not with "
          "r=4,alpha=4,targets=a,b: use --lora 'r=4,alpha=8,targets=a,b'");
    CHECK(other_lora_text(lora_in(with), without).find("remove --lora (dslaunch.lora)") !=
          std::string::npos);
}
