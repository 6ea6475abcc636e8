// Resolves zero_optimization.zenflow: updates that are delayed for unimportant parts of parameters.
#include "config/resolve/resolve_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::config {

namespace {

constexpr const char* kSection = "zero_optimization.zenflow";
// The values for `auto`. kUpdateInterval is the update interval in the experiments of the ZenFlow
// paper. After kIntervalsOfChoice update intervals, the important units are selected again.
constexpr int64_t kUpdateInterval = 4;
constexpr int64_t kIntervalsOfChoice = 16;

std::string key(const char* name) {
    return fmt::format("{}.{}", kSection, name);
}

// Returns the number given for the key NAME of the section. If there is no such number, or the
// value is `auto`, records and returns DERIVED, with FORMULA as its explanation.
int64_t lag_number(KeyReader& keys, const std::string& name, int64_t derived,
                   const std::string& formula) {
    const std::string path = key(name.c_str());
    const Value* const value = keys.given(path);
    if (value == nullptr || (value->is(Value::Kind::kString) && value->text == "auto")) {
        keys.derive(path, make_value(derived), formula);
        return derived;
    }
    keys.record(path, *value, value->origin);
    if (value->is(Value::Kind::kInt) && value->integer >= 1) return value->integer;
    keys.problem(path, "must be a number of steps, at least 1, or auto");
    return derived;
}

void lag_intervals(KeyReader& keys, RunConfig& run) {
    LaggingConfig& lagging = run.lagging;
    lagging.update_interval =
        lag_number(keys, "update_interval", kUpdateInterval, "auto = 4, as in the ZenFlow paper");
    const std::string strategy = keys.take_text(key("select_strategy"));
    const Value* const epoch = keys.given(key("steps_per_epoch"));
    const int64_t steps = epoch == nullptr ? 0 : keys.take_integer(key("steps_per_epoch"));
    const int64_t interval = lagging.update_interval;
    const bool by_epoch = strategy == "epoch" || (strategy == "auto" && steps > 0);
    if (strategy == "epoch" && steps == 0)
        keys.problem(key("select_strategy"),
                     "`epoch` needs steps_per_epoch, which is not given: set steps_per_epoch, or "
                     "use `step`");
    // Rounds the steps of an epoch up to a multiple of the update interval, so that no gradient is
    // waiting for its update when the important units change.
    const int64_t of_epoch = (std::max<int64_t>(1, steps) + interval - 1) / interval * interval;
    lagging.select_interval =
        lag_number(keys, "select_interval", by_epoch ? of_epoch : kIntervalsOfChoice * interval,
                   by_epoch ? "auto = steps_per_epoch, in whole update_intervals"
                            : "auto = 16 update_intervals");
    const Value* const said = keys.given(key("select_interval"));
    if (by_epoch && said != nullptr && said->is(Value::Kind::kInt))
        lagging.select_interval *= of_epoch;
    if (lagging.select_interval % interval != 0)
        keys.problem(
            key("select_interval"),
            fmt::format("{} is not a multiple of update_interval, {}: the important units can "
                        "change only after an update with all waiting gradients; use {}",
                        lagging.select_interval, interval,
                        (lagging.select_interval / interval + 1) * interval));
}

void check_lagging(KeyReader& keys, RunConfig& run) {
    const auto refuse = [&](const std::string& path, const char* what) {
        keys.problem(path, fmt::format("{}: remove it, or {}", what, kSection));
    };
    if (run.optimizer.kind != OptimizerKind::kAdam && run.optimizer.kind != OptimizerKind::kAdamW)
        keys.problem(kSection,
                     "supports only Adam and AdamW: late updates use the mean of several "
                     "gradients, which works only with Adam's moments");
    if (run.optimizer.amsgrad)
        refuse("optimizer.params.amsgrad",
               "late updates use the mean of several gradients, and the largest square of a mean "
               "differs from the largest square of a single gradient");
    if (run.pipeline.stages > 1)
        refuse("dslaunch.pipeline.stages",
               "pipeline stages cannot be used together with zenflow in this version");
    if (run.tensor.size > 1)
        refuse("dslaunch.tensor.size",
               "zenflow needs whole tensors, but ranks that share layers have only parts of them");
    if (run.zero.shard == ShardBy::kRow)
        refuse("dslaunch.shard",
               "zenflow selects units within blocks of a tensor, but `row` cuts the blocks");
    if (run.zero.shard_auto)
        refuse("dslaunch.shard",
               "zenflow selects units within blocks of a tensor, but `auto` may cut the blocks");
    if (run.offload.parameters == OffloadDevice::kNvme)
        refuse("zero_optimization.offload_param.device",
               "with zenflow, a part of every tensor changes in each step, so parameters cannot be "
               "on disk");
    if (run.offload.adaptive)
        refuse("dslaunch.offload.placement",
               "zenflow keeps the states of important units in memory, outside of the chunks that "
               "placement moves");
    if (run.offload.optimizer == OffloadDevice::kNvme && run.offload.moments != MomentFormat::kFp32)
        refuse("dslaunch.offload.compress.moments",
               "with zenflow, the states of important units stay in fp32, and only the other "
               "states are rounded");
    if (run.states != MomentFormat::kFp32)
        refuse("dslaunch.optimizer.states",
               "a unit of zenflow is smaller than the blocks that are rounded together");
    if (!run.precision.master_copies)
        refuse("bf16.bf16_master_weights_and_grads",
               "the late updates of zenflow need fp32 master weights");
}

}  // namespace

// REQUIRES: all sections that are read here have been resolved.
void resolve_lagging(KeyReader& keys, RunConfig& run) {
    if (!keys.has(kSection)) return;
    LaggingConfig& lagging = run.lagging;
    lagging.on = true;
    lagging.topk_ratio = keys.take_number(key("topk_ratio"));
    if (lagging.topk_ratio <= 0 || lagging.topk_ratio >= 1)
        keys.problem(key("topk_ratio"),
                     "must be above 0 and below 1: the part that is updated in every step");
    lagging.overlap = keys.take_bool(key("overlap_step"));
    lagging.warm_up_steps = keys.take_integer(key("full_warm_up_rounds"));
    lag_intervals(keys, run);
    check_lagging(keys, run);
}

}  // namespace dslaunch::config
