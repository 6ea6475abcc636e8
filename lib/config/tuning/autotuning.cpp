#include "config/tuning/autotuning.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::config {
namespace {

// Returns the value of PATH; null if it has its default.
const Value* value_given(const Resolved& resolved, std::string_view path) {
    for (const ResolvedValue& value : resolved.values)
        if (value.path == path)
            return value.origin == "default" || value.value.is(Value::Kind::kNull) ? nullptr
                                                                                   : &value.value;
    return nullptr;
}

std::optional<int64_t> number_given(const Resolved& resolved, std::string_view key) {
    const Value* const value = value_given(resolved, fmt::format("autotuning.{}", key));
    if (value == nullptr) return std::nullopt;
    return value->is(Value::Kind::kInt) ? value->integer : static_cast<int64_t>(value->number);
}

}  // namespace

void require_limits(const AutotuningConfig& tuning, const BatchConfig& batch) {
    const auto refuse = [&](const char* key, int64_t limit, const char* relation) {
        fail(ExitCode::kConfig,
             "autotuning.{}: {} is {} than the config's batch of {} rows, which the search keeps: "
             "change train_batch_size, or remove the key",
             key, limit, relation, batch.train_rows);
    };
    if (tuning.train_rows_max && *tuning.train_rows_max < batch.train_rows)
        refuse("max_train_batch_size", *tuning.train_rows_max, "less");
    if (tuning.train_rows_min && *tuning.train_rows_min > batch.train_rows)
        refuse("min_train_batch_size", *tuning.train_rows_min, "more");
    if (tuning.micro_rows_min && tuning.micro_rows_max &&
        *tuning.micro_rows_min > *tuning.micro_rows_max)
        fail(ExitCode::kConfig,
             "autotuning.min_train_micro_batch_size_per_gpu: {} is more than "
             "max_train_micro_batch_size_per_gpu ({})",
             *tuning.micro_rows_min, *tuning.micro_rows_max);
    if (tuning.start_profile_step && tuning.end_profile_step &&
        *tuning.start_profile_step > *tuning.end_profile_step)
        fail(ExitCode::kConfig, "autotuning.start_profile_step: {} is after end_profile_step ({})",
             *tuning.start_profile_step, *tuning.end_profile_step);
}

AutotuningConfig autotuning_of(const Resolved& resolved) {
    AutotuningConfig tuning;
    const auto text = [&](const char* key) { return value_given(resolved, key); };
    if (const Value* value = text("autotuning.metric")) tuning.metric = lower(value->text);
    if (const Value* value = text("autotuning.results_dir")) tuning.results_dir = value->text;
    if (const Value* value = text("autotuning.overwrite")) tuning.overwrite = value->boolean;
    if (const Value* value = text("autotuning.fast")) tuning.fast = value->boolean;
    if (const Value* value = text("autotuning.tuner_type")) tuning.tuner_type = value->text;
    tuning.start_profile_step = number_given(resolved, "start_profile_step");
    tuning.end_profile_step = number_given(resolved, "end_profile_step");
    tuning.trials_max = number_given(resolved, "tuner_num_trials");
    tuning.without_gain_max = number_given(resolved, "tuner_early_stopping");
    tuning.micro_sizes = number_given(resolved, "num_tuning_micro_batch_sizes");
    tuning.micro_rows_min = number_given(resolved, "min_train_micro_batch_size_per_gpu");
    tuning.micro_rows_max = number_given(resolved, "max_train_micro_batch_size_per_gpu");
    tuning.train_rows_min = number_given(resolved, "min_train_batch_size");
    tuning.train_rows_max = number_given(resolved, "max_train_batch_size");
    return tuning;
}

bool is_from_command_line(const Resolved& resolved, std::string_view path) {
    return std::ranges::any_of(resolved.values, [&](const ResolvedValue& value) {
        return value.path == path && value.origin.starts_with("--");
    });
}

std::vector<std::string> trial_overrides(const Resolved& resolved) {
    // Keys that begin with these words make a run write, print or compute things besides its steps.
    static constexpr std::array<std::string_view, 15> kOff = {"autotuning.enabled",
                                                              "comet.enabled",
                                                              "comms_logger.enabled",
                                                              "csv_monitor.enabled",
                                                              "dslaunch.metrics.prometheus",
                                                              "flops_profiler.enabled",
                                                              "memory_breakdown",
                                                              "tensorboard.enabled",
                                                              "wandb.enabled",
                                                              "dslaunch.samples.prompts",
                                                              "dslaunch.samples.file",
                                                              "dslaunch.save.time_limit",
                                                              "wall_clock_breakdown",
                                                              "dslaunch.check_equal_interval",
                                                              "dslaunch.trace_step"};
    static constexpr std::array<std::string_view, 6> kOfHeldOut = {
        "dslaunch.data.eval", "dslaunch.data.eval_fraction", "dslaunch.eval_interval",
        "dslaunch.save.best", "dslaunch.patience",           "dslaunch.patience_gain"};
    std::vector<std::string> overrides;
    const auto turn_off = [&](std::string_view path) {
        if (const Value* value = value_given(resolved, path))
            overrides.push_back(
                fmt::format("{}={}", path, value->is(Value::Kind::kBool) ? "false" : "null"));
    };
    for (const std::string_view path : kOff) turn_off(path);
    for (const std::string_view path : kOfHeldOut) turn_off(path);
    return overrides;
}

}  // namespace dslaunch::config
