// Resolves updates that lag: zero_optimization.zenflow.
#include "config/resolve/resolve_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::config {

namespace {

constexpr const char* kSection = "zero_optimization.zenflow";
// The values for `auto`: the interval that the paper's runs use, and the number of intervals
// between two choices of the important units.
constexpr int64_t kUpdateInterval = 4;
constexpr int64_t kIntervalsOfChoice = 16;

std::string key(const char* name) {
    return fmt::format("{}.{}", kSection, name);
}

// Returns the number given at NAME, or else DERIVED, which is recorded with FORMULA.
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
    keys.problem(path, "must be a number of steps from 1 on, or auto");
    return derived;
}

void lag_intervals(KeyReader& keys, RunConfig& run) {
    LaggingConfig& lagging = run.lagging;
    lagging.update_interval =
        lag_number(keys, "update_interval", kUpdateInterval, "auto = 4, as in the paper's runs");
    const std::string strategy = keys.take_text(key("select_strategy"));
    const Value* const epoch = keys.given(key("steps_per_epoch"));
    const int64_t steps = epoch == nullptr ? 0 : keys.take_integer(key("steps_per_epoch"));
    const int64_t interval = lagging.update_interval;
    const bool by_epoch = strategy == "epoch" || (strategy == "auto" && steps > 0);
    if (strategy == "epoch" && steps == 0)
        keys.problem(key("select_strategy"),
                     "epoch counts in steps_per_epoch, which is not given: give it, or take step");
    // Rounded up to whole intervals, so that no gradient is waiting for its update when the
    // important units change.
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
            fmt::format("{} is no multiple of update_interval, {}: what is important changes "
                        "when no gradient waits, so take {}",
                        lagging.select_interval, interval,
                        (lagging.select_interval / interval + 1) * interval));
}

void check_lagging(KeyReader& keys, RunConfig& run) {
    const auto refuse = [&](const std::string& path, const char* what) {
        keys.problem(path, fmt::format("{}: remove it, or {}", what, kSection));
    };
    if (run.optimizer.kind != OptimizerKind::kAdam && run.optimizer.kind != OptimizerKind::kAdamW)
        keys.problem(kSection,
                     "is there for Adam and AdamW: an update of the rest takes the mean of "
                     "several gradients, which their moments are made for");
    if (run.pipeline.stages > 1)
        refuse("dslaunch.pipeline.stages", "stages are not there beside zenflow in this version");
    if (run.tensor.size > 1)
        refuse("dslaunch.tensor.size",
               "units are of whole tensors, and ranks that share layers hold parts of them");
    if (run.zero.shard == ShardBy::kRow)
        refuse("dslaunch.shard", "units are chosen within blocks, which `row` cuts");
    if (run.zero.shard_auto)
        refuse("dslaunch.shard", "`auto` may cut blocks, within which units are chosen");
    if (run.offload.parameters == OffloadDevice::kNvme)
        refuse("zero_optimization.offload_param.device",
               "a part of all parameters changes in every step, so they are not on disk");
    if (run.offload.adaptive)
        refuse("dslaunch.offload.placement",
               "states of important units are in memory, apart from the chunk that would move");
    if (run.offload.optimizer == OffloadDevice::kNvme && run.offload.moments != MomentFormat::kFp32)
        refuse("dslaunch.offload.compress.moments",
               "what is important would not be rounded, and the rest would");
    if (run.states != MomentFormat::kFp32)
        refuse("dslaunch.optimizer.states", "units are less than what is rounded together");
    if (!run.precision.master_copies)
        refuse("bf16.bf16_master_weights_and_grads",
               "late updates need master weights to land from");
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
