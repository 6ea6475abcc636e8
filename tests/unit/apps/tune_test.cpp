// The parts of `dslaunch tune` that start no job: its command line, the steps of a trial, the
// printed text, and the config that is written.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/resolve/resolve.h"
#include "launcher/tune/forecasts.h"
#include "launcher/tune/trial_steps.h"
#include "launcher/tune/tune_options.h"
#include "launcher/tune/tune_report.h"
#include "launcher/tune/tune_search.h"
#include "launcher/tune/watched_child.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::launcher {
namespace {

using test::TemporaryFolder;
using test::write_file;

std::string line_of(int step, double step_ms) {
    return fmt::format("{{\"step\": {}, \"step_ms\": {}, \"peak_rss_bytes\": {}}}", step, step_ms,
                       1000 + step);
}

std::string tune_refusal_of(const std::vector<std::string>& words) {
    return test::error_of(ExitCode::kUsage, [&] { static_cast<void>(parse_tune_options(words)); });
}

// Returns three candidates: the given one, one with other settings, and one that does not fit.
Forecasts three() {
    return parse_forecasts(R"({"train_rows": 8, "step_flops": 4000000000, "kept_micro_batch": "",
        "configs": [
        {"micro_rows": 4, "accumulation_steps": 2, "stage": 0, "recompute_groups": 0,
         "optimizer_on_disk": false, "parameters_on_disk": false, "bucket_numel": 100,
         "step_s": 0.02, "rank_bytes": 10, "fits": true, "set": []},
        {"micro_rows": 8, "accumulation_steps": 1, "stage": 0, "recompute_groups": 0,
         "optimizer_on_disk": false, "parameters_on_disk": false, "bucket_numel": 100,
         "step_s": 0.01, "rank_bytes": 20, "fits": true,
         "set": ["train_batch_size=8", "train_micro_batch_size_per_gpu=8",
                 "gradient_accumulation_steps=1"]},
        {"micro_rows": 8, "accumulation_steps": 1, "stage": 3, "recompute_groups": 0,
         "optimizer_on_disk": false, "parameters_on_disk": false, "bucket_numel": 100,
         "step_s": 0.01, "rank_bytes": 9000, "fits": false, "set": ["zero_optimization.stage=3"]}
        ]})");
}

SearchResult result_of(const Forecasts& forecasts) {
    std::vector<plan::TrialCandidate> candidates;
    for (const TuneCandidate& one : forecasts.candidates) candidates.push_back(one.trial);
    SearchResult result{{std::move(candidates), {}}, {{0, 5 << 20, "", 0}, {1, 6 << 20, "", 0}}};
    result.order.add_measured(0, 0.04);
    result.order.add_measured(1, 0.016);
    return result;
}

}  // namespace

TEST_CASE("a trial measures from its second step on until three steps and a second are there") {
    TrialSteps steps({});
    steps.add(line_of(1, 9000));
    CHECK_FALSE(steps.is_done());
    steps.add(R"({"step": 1, "eval_loss": 3.5})");  // no step
    for (int step = 2; step <= 3; ++step) steps.add(line_of(step, 600));
    CHECK_FALSE(steps.is_done());
    steps.add(line_of(4, 200));
    CHECK(steps.is_done());
    CHECK(*steps.step_s() == Approx(0.6));
    CHECK(steps.peak_bytes() == 1004);
}

TEST_CASE("short steps end a trial at their largest number, slow ones after two") {
    TrialSteps fast({});
    int step = 1;
    while (!fast.is_done()) fast.add(line_of(++step, 1));
    CHECK(step == 51);
    TrialSteps slow({.best_s = 0.25});
    slow.add(line_of(2, 600));
    CHECK_FALSE(slow.is_done());
    slow.add(line_of(3, 700));
    CHECK(slow.is_done());
    TrialSteps given({.first = 3, .last = 5});
    for (int s = 1; s <= 4; ++s) given.add(line_of(s, 5000));
    CHECK_FALSE(given.is_done());
    given.add(line_of(5, 1000));
    CHECK(given.is_done());
    CHECK(*given.step_s() == Approx(5.0));
}

TEST_CASE("a job that ends before the first measured step gives the steps that it had") {
    TrialSteps steps({});
    CHECK_FALSE(steps.step_s().has_value());
    steps.add(line_of(1, 40));
    CHECK(*steps.step_s() == Approx(0.04));
    steps.add("not JSON");
    steps.add(R"({"step": 2, "step_ms": null})");
    CHECK(*steps.step_s() == Approx(0.04));
}

TEST_CASE("the command line of tune: its own options, those of run, and refusals with a way out") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/m.pt";
    write_file(model, "");
    const TuneOptions options = parse_tune_options(std::vector<std::string>{
        "--minutes", "0.5", model, "-o", "c.yaml", "--trials=4", "--tuner", "gridsearch",
        "--num_gpus", "2", "--json", "--force", "--set", "zero_optimization.stage=1"});
    CHECK(options.minutes == 0.5);
    CHECK(options.output == "c.yaml");
    CHECK(options.run.output.empty());
    CHECK(options.trials == 4);
    CHECK(options.tuner == "grid");
    CHECK(options.json);
    CHECK(options.force);
    CHECK(options.run.filter.num_gpus == 2);
    CHECK(options.run.set == std::vector<std::string>{"zero_optimization.stage=1"});
    const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
        {{}, "MODEL is missing"},
        {{model, "--minutes", "0"}, "is not a number of minutes"},
        {{model, "--minutes", "nan"}, "is not a number of minutes"},
        {{model, "--trials", "0"}, "is not a number from 1"},
        {{model, "--tuner", "xgboost"}, "is none of model, grid, random"},
        {{model, "--resume"}, "--resume"},
        {{model, "--no-output"}, "--no-output"},
        {{model, model}, "unexpected"},
        {{"/bin/true"}, "is not a model"},
        {{model, "--no_ssh", "--node_rank", "0", "--master_addr", "a", "--nnodes", "2"},
         "trials are started one after another"},
        {{model, "--elastic_training"}, "a fixed number of ranks"},
    };
    for (const auto& [words, message] : refused) {
        CAPTURE(message);
        CHECK_THAT(tune_refusal_of(words), Catch::Contains(message));
    }
}

TEST_CASE("the section's rules hold unless the command line gives others") {
    config::AutotuningConfig tuning;
    CHECK(rules_of(tuning, {}, "").method == plan::TrialMethod::kModel);
    tuning.tuner_type = "gridsearch";
    tuning.trials_max = 9;
    tuning.without_gain_max = 2;
    CHECK(rules_of(tuning, {}, "").method == plan::TrialMethod::kGrid);
    CHECK(rules_of(tuning, {}, "").candidates_max == 9);
    CHECK(rules_of(tuning, {}, "").without_gain_max == 2);
    CHECK(rules_of(tuning, 3, "random").method == plan::TrialMethod::kRandom);
    CHECK(rules_of(tuning, 3, "random").candidates_max == 3);
    CHECK_FALSE(steps_of(tuning).last.has_value());
    tuning.start_profile_step = 0;
    tuning.end_profile_step = 4;
    CHECK(steps_of(tuning).first == 1);
    CHECK(steps_of(tuning).last == 4);
}

TEST_CASE("the table has forecast beside measured, and why the rest was not tried") {
    const Forecasts forecasts = three();
    SearchResult result = result_of(forecasts);
    const std::string text = search_text(forecasts, result, "throughput", 0);
    const std::vector<std::string> lines = split(text, '\n');
    CHECK_THAT(lines[1], Catch::Contains("micro batch 4 x 2, ZeRO 0, buckets of 100"));
    CHECK_THAT(lines[1], Catch::Contains("20 ") && Catch::Contains("40 ") &&
                             Catch::Contains("200 ") && Catch::Contains("5.0 MiB") &&
                             Catch::Contains("given"));
    CHECK_THAT(lines[2], Catch::Contains("10 ") && Catch::Contains("16 ") &&
                             Catch::Contains("500 ") && Catch::Contains("chosen"));
    CHECK_THAT(text, Catch::Contains("not tried: 1 config: it does not fit into memory"));
    CHECK_THAT(search_text(forecasts, result, "flops", 0), Catch::Contains("0.25"));
    CHECK_THAT(search_text(forecasts, result, "latency", 0), !Catch::Contains("rows/s"));
    CHECK(choice_text(result) ==
          "micro batch 8 x 1, ZeRO 0, buckets of 100: 16 ms a step, 2.50 times as fast as the "
          "given config");
    const auto json = nlohmann::json::parse(search_json(forecasts, result));
    CHECK(json["chosen"]["micro_rows"] == 8);
    CHECK(json["chosen"]["set"].size() == 3);
    CHECK(json["tried"].size() == 2);
    CHECK(json["untried"][0]["configs"] == 1);
    result.order.add_failed(1);
    result.tried[1].failure = "no memory";
    CHECK(choice_text(result) ==
          "micro batch 4 x 2, ZeRO 0, buckets of 100: 40 ms a step, the "
          "given config");
    CHECK_THAT(search_text(forecasts, result, "throughput", 0),
               Catch::Contains("failed: micro batch 8 x 1, ZeRO 0, buckets of 100: no memory"));
}

TEST_CASE("the written config keeps the user's keys, and reads back with the chosen values") {
    const config::TrainConfig given = config::parse_config(
        R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
            "autotuning": {"enabled": true}})",
        "ds_config.json");
    const std::vector<std::string> set = {"train_batch_size=8", "train_micro_batch_size_per_gpu=2",
                                          "gradient_accumulation_steps=4"};
    for (const std::string name : {"a.json", "a.yaml", "a.hjson"}) {
        CAPTURE(name);
        const std::string text = tuned_config_text(given, set, "it is fast", name);
        CHECK(text.starts_with("#") == (name != "a.json"));
        if (name != "a.json") CHECK_THAT(text, Catch::Contains("it is fast"));
        const config::TrainConfig back = config::parse_config(text, name);
        REQUIRE(back.problems.empty());
        const config::Resolved resolved = config::resolve(back, {.world_size = 1});
        REQUIRE(resolved.problems.empty());
        CHECK(resolved.config.batch.micro_rows == 2);
        CHECK(resolved.config.batch.accumulation_steps == 4);
        CHECK(config::find_path(back.root, "optimizer.params.lr")->as_double() == 0.5);
        CHECK_FALSE(config::find_path(back.root, "autotuning.enabled")->boolean);
    }
}

TEST_CASE("the cause of a failure is the last error, or else the last line") {
    CHECK(cause_of("a\ndslaunch: error: no memory\nb\n") == "no memory");
    CHECK(cause_of("a\nb\n\n") == "b");
    CHECK(cause_of("").empty());
}

TEST_CASE("an output of the forecast that is cut off is a bug, and is said to be one") {
    for (const char* text : {"", "{}", "[]", R"({"train_rows": 1, "step_flops": 1,
                                              "kept_micro_batch": "", "configs": []})"}) {
        try {
            static_cast<void>(parse_forecasts(text));
            FAIL("not refused");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kInternal);
        }
    }
}

}  // namespace dslaunch::launcher
