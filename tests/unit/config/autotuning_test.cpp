// DeepSpeed's section `autotuning`, as the search reads it.
#include "config/tuning/autotuning.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/resolve/resolve.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

Resolved resolved_of(const std::string& text) {
    return resolve(parse_config(text, "ds_config.json"), {.world_size = 2});
}

}  // namespace

TEST_CASE("a config of DeepSpeed's tutorial is read, and only what it gives is set") {
    const Resolved resolved = resolved_of(R"({
        "train_micro_batch_size_per_gpu": 4,
        "autotuning": {"enabled": true, "overwrite": false, "fast": false, "metric": "FLOPS",
                       "results_dir": "r", "exps_dir": "e", "tuner_type": "model_based",
                       "tuner_num_trials": 7, "tuner_early_stopping": 2, "start_profile_step": 4,
                       "end_profile_step": 9, "num_tuning_micro_batch_sizes": 3,
                       "max_train_micro_batch_size_per_gpu": 8, "mp_size": 1,
                       "arg_mappings": {"train_micro_batch_size_per_gpu": "--batch"}}})");
    REQUIRE(resolved.problems.empty());
    const AutotuningConfig tuning = autotuning_of(resolved);
    CHECK(tuning.metric == "flops");
    CHECK(tuning.results_dir == "r");
    CHECK_FALSE(tuning.overwrite);
    CHECK(tuning.fast == false);
    CHECK(tuning.tuner_type == "model_based");
    CHECK(tuning.trials_max == 7);
    CHECK(tuning.without_gain_max == 2);
    CHECK(tuning.start_profile_step == 4);
    CHECK(tuning.end_profile_step == 9);
    CHECK(tuning.micro_sizes == 3);
    CHECK(tuning.micro_rows_max == 8);
    CHECK_FALSE(tuning.micro_rows_min.has_value());
    // The notes of a run say that it does not search, and name the key that has no meaning.
    std::string notes;
    for (const std::string& note : resolved.notes) notes += note + "\n";
    CHECK_THAT(notes, Catch::Contains("dslaunch tune MODEL"));
    CHECK_THAT(notes, Catch::Contains("autotuning.arg_mappings has no effect"));
    const AutotuningConfig none = autotuning_of(resolved_of("{}"));
    CHECK_FALSE(none.fast.has_value());
    CHECK_FALSE(none.trials_max.has_value());
    CHECK(none.metric == "throughput");
    CHECK(none.overwrite);
}

TEST_CASE("limits that exclude the batch or each other are refused") {
    const std::vector<std::pair<std::string, std::string>> rows = {
        {R"("max_train_batch_size": 7)", "max_train_batch_size: 7 is less"},
        {R"("min_train_batch_size": 9)", "min_train_batch_size: 9 is more"},
        {R"("start_profile_step": 5, "end_profile_step": 4)", "after end_profile_step"},
        {R"("min_train_micro_batch_size_per_gpu": 5, "max_train_micro_batch_size_per_gpu": 4)",
         "is more than max_train_micro"}};
    for (const auto& [keys, message] : rows) {
        const Resolved resolved =
            resolved_of("{\"train_batch_size\": 8, \"autotuning\": {" + keys + "}}");
        REQUIRE(resolved.problems.empty());
        try {
            require_limits(autotuning_of(resolved), resolved.config.batch);
            FAIL("not refused: " << keys);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kConfig);
            CHECK_THAT(error.what(), Catch::Contains(message));
        }
    }
    const Resolved good = resolved_of(
        R"({"train_batch_size": 8,
            "autotuning": {"max_train_batch_size": 8, "min_train_batch_size": 8}})");
    CHECK_NOTHROW(require_limits(autotuning_of(good), good.config.batch));
}

TEST_CASE("a trial turns off what a run does besides its steps, and nothing else") {
    const Resolved resolved = resolved_of(
        R"({"wall_clock_breakdown": true, "tensorboard": {"enabled": true},
            "autotuning": {"enabled": true}, "gradient_clipping": 1.0,
            "dslaunch": {"trace_step": 3, "eval_interval": 5, "check_equal_interval": 2,
                         "patience": 2, "patience_gain": 0.1,
                         "data": {"train": "a", "eval_fraction": 0.1}}})");
    REQUIRE(resolved.problems.empty());
    std::vector<std::string> overrides = trial_overrides(resolved);
    std::ranges::sort(overrides);
    CHECK(overrides ==
          std::vector<std::string>{"autotuning.enabled=false", "dslaunch.check_equal_interval=null",
                                   "dslaunch.data.eval_fraction=null",
                                   "dslaunch.eval_interval=null", "dslaunch.patience=null",
                                   "dslaunch.patience_gain=null", "dslaunch.trace_step=null",
                                   "tensorboard.enabled=false", "wall_clock_breakdown=false"});
    CHECK(trial_overrides(resolved_of("{}")).empty());
}

TEST_CASE("keys from the command line are known") {
    TrainConfig config = parse_config(R"({"zero_optimization": {"stage": 1}})", "c.json");
    apply_override(config, "gradient_clipping=1");
    const Resolved resolved = resolve(config, {.world_size = 1});
    CHECK(is_from_command_line(resolved, "gradient_clipping"));
    CHECK_FALSE(is_from_command_line(resolved, "zero_optimization.stage"));
    CHECK_FALSE(is_from_command_line(resolved, "steps_per_print"));
}
