// Resolves the scheduler.
#include "config/resolve/resolve_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "config/read/quoteless.h"

namespace dslaunch::config {

namespace {

// Reads OneCycle. DeepSpeed's OneCycle changes the first beta if the optimizer has betas, and then
// sets the second one to 0.99.
void one_cycle(KeyReader& keys, RunConfig& run) {
    SchedulerConfig& scheduler = run.scheduler;
    scheduler.kind = SchedulerKind::kOneCycle;
    CycleConfig& cycle = scheduler.cycle;
    const std::string params = "scheduler.params.";
    for (const auto& [name, value] :
         {std::pair("cycle_min_lr", &cycle.min_lr), std::pair("cycle_max_lr", &cycle.max_lr)}) {
        if (!keys.has(params + name)) {
            keys.problem(params + name, "is required: a bound of the cycle's learning rates");
        } else {
            *value = keys.take_number(params + name);
        }
    }
    cycle.lr_decay_rate = keys.take_number(params + "decay_lr_rate");
    cycle.first_steps = keys.take_integer(params + "cycle_first_step_size");
    cycle.second_steps = keys.integer_or(params + "cycle_second_step_size", cycle.first_steps,
                                         "cycle_first_step_size");
    cycle.first_stairs = keys.take_integer(params + "cycle_first_stair_count");
    cycle.second_stairs = keys.integer_or(params + "cycle_second_stair_count", cycle.first_stairs,
                                          "cycle_first_stair_count");
    cycle.decay_steps = keys.take_integer(params + "decay_step_size");
    cycle.min_beta = keys.take_number(params + "cycle_min_mom");
    cycle.max_beta = keys.take_number(params + "cycle_max_mom");
    cycle.beta_decay_rate = keys.take_number(params + "decay_mom_rate");
    cycle.betas = keys.take_bool(params + "cycle_momentum");
    if (cycle.beta_decay_rate > 0 && cycle.decay_steps > 0)
        keys.note(params + "decay_mom_rate",
                  "raises the first beta with every update after the cycle, as in DeepSpeed; once "
                  "it reaches 1, training diverges");
    if (cycle.betas && !facts_of(run.optimizer.kind).has_betas) {
        cycle.betas = false;
        keys.note(
            "scheduler.type",
            "does not cycle the momentum: DeepSpeed cycles only betas, and the optimizer has none");
    } else if (cycle.betas) {
        keys.note(
            "scheduler.type",
            "also cycles the first of optimizer.params.betas, and sets the second one to 0.99, as "
            "in DeepSpeed; scheduler.params.cycle_momentum false keeps the optimizer's betas");
    }
}

void range_test(KeyReader& keys, RunConfig& run) {
    SchedulerConfig& scheduler = run.scheduler;
    scheduler.kind = SchedulerKind::kLrRangeTest;
    const std::string params = "scheduler.params.lr_range_test_";
    scheduler.range_test = {
        keys.take_number(params + "min_lr"), keys.take_integer(params + "step_size"),
        keys.take_number(params + "step_rate"), keys.take_bool(params + "staircase")};
}

void total_steps(KeyReader& keys, RunConfig& run) {
    const std::string path = "scheduler.params.total_num_steps";
    int64_t& total = run.scheduler.total_num_steps;
    if (keys.has(path)) {
        total = keys.take_integer(path);
        const int64_t steps = run.steps;
        if (steps > 0 && total > 0 && total != steps)
            keys.warn(path,
                      total > steps
                          ? fmt::format("differs from the run's number of steps: the schedule ends "
                                        "at step {}, but the run at {}, so the rate does not decay "
                                        "fully; \"auto\" uses the run's steps",
                                        total, steps)
                          : fmt::format("differs from the run's number of steps: the schedule ends "
                                        "at step {}, but the run at {}, so all later steps use the "
                                        "last rate; \"auto\" uses the run's steps",
                                        total, steps));
    } else if (!keys.is_auto(path)) {
        keys.problem(
            path, "is required: the step at which the decay ends, or \"auto\" for the run's steps");
    } else if (run.steps > 0) {
        total = run.steps;
        keys.derive(path, make_value(total), "the run's steps");
    } else {
        keys.derive(path, make_value(std::string("auto")), "the run's steps (--steps or --epochs)");
    }
}

void ratio_schedule(KeyReader& keys, RunConfig& run, const std::string& type) {
    SchedulerConfig& scheduler = run.scheduler;
    scheduler.kind = type == "Linear"   ? SchedulerKind::kLinear
                     : type == "Cosine" ? SchedulerKind::kCosine
                                        : SchedulerKind::kWsd;
    scheduler.min_ratio = keys.take_number("scheduler.params.min_ratio");
    total_steps(keys, run);
    if (type != "WSD") return;
    const std::string path = "scheduler.params.decay_num_steps";
    scheduler.decay_num_steps = keys.integer_or(
        path, std::max<int64_t>(1, scheduler.total_num_steps / 10), "total_num_steps / 10");
    const std::string shape = keys.take_text("scheduler.params.decay_type");
    scheduler.decay_type = shape == "cosine"   ? DecayType::kCosine
                           : shape == "1-sqrt" ? DecayType::kOneMinusSqrt
                                               : DecayType::kLinear;
    if (scheduler.total_num_steps > 0 &&
        scheduler.warmup_num_steps + scheduler.decay_num_steps > scheduler.total_num_steps)
        keys.problem(path, fmt::format("{} steps of warm-up and {} of decay are more than "
                                       "total_num_steps, {}",
                                       scheduler.warmup_num_steps, scheduler.decay_num_steps,
                                       scheduler.total_num_steps));
}

WarmupType take_warmup_type(KeyReader& keys) {
    const std::string path = "scheduler.params.warmup_type";
    const Value* shape = keys.given(path);
    if (shape == nullptr || shape->text == "log" || shape->text == "linear")
        return keys.take_text(path) == "linear" ? WarmupType::kLinear : WarmupType::kLog;
    const std::string said = shown(*shape);
    keys.note(
        path,
        fmt::format("is {}, which DeepSpeed does not know: as in DeepSpeed, `log` is used instead",
                    said));
    keys.derive(path, make_value(std::string("log")), "DeepSpeed's fallback for " + said);
    return WarmupType::kLog;
}

void warmup(KeyReader& keys, RunConfig& run, const std::string& type) {
    SchedulerConfig& scheduler = run.scheduler;
    bool decay = type == "WarmupDecayLR";
    scheduler.kind = decay ? SchedulerKind::kWarmupDecayLr : SchedulerKind::kWarmupLr;
    scheduler.warmup_min_lr = keys.take_number("scheduler.params.warmup_min_lr");
    const std::string max_path = "scheduler.params.warmup_max_lr";
    if (!keys.has(max_path) && (!decay || keys.is_auto(max_path) || keys.options().is_pretrained)) {
        scheduler.warmup_max_lr = run.optimizer.lr;
        keys.derive(max_path, make_value(scheduler.warmup_max_lr), "optimizer.params.lr");
    } else {
        scheduler.warmup_max_lr = keys.take_number(max_path);
    }
    if (decay) total_steps(keys, run);
}

void cosine(KeyReader& keys, RunConfig& run) {
    SchedulerConfig& scheduler = run.scheduler;
    scheduler.kind = SchedulerKind::kWarmupCosineLr;
    scheduler.warmup_min_ratio = keys.take_number("scheduler.params.warmup_min_ratio");
    scheduler.cos_min_ratio = keys.take_number("scheduler.params.cos_min_ratio");
    total_steps(keys, run);
}

}  // namespace

void resolve_scheduler(KeyReader& keys, RunConfig& run) {
    const Value* type = keys.given("scheduler.type");
    const Value* section = find_path(keys.root(), "scheduler");
    if (type == nullptr) {
        if (section != nullptr && section->is(Value::Kind::kObject) && !section->items.empty()) {
            keys.problem("scheduler", fmt::format("has no `type`, so it has no effect: give {}, "
                                                  "e.g. --set scheduler.type=WarmupLR",
                                                  types_text("scheduler")));
        }
        return;
    }
    const std::vector<std::string>& names = available_types("scheduler");
    if (std::find(names.begin(), names.end(), type->text) == names.end()) {
        auto near = nearest(type->text, names);
        return keys.problem("scheduler.type",
                            fmt::format("unknown scheduler {}{}", shown(*type),
                                        near ? fmt::format(", did you mean `{}`?", *near)
                                             : ": use " + types_text("scheduler")));
    }
    keys.record("scheduler.type", *type, type->origin);
    if (type->text == "OneCycle") return one_cycle(keys, run);
    if (type->text == "LRRangeTest") return range_test(keys, run);
    SchedulerConfig& scheduler = run.scheduler;
    const std::string warmup_steps = "scheduler.params.warmup_num_steps";
    const bool of_transformers =
        type->text == "Linear" || type->text == "Cosine" || type->text == "WSD";
    if (of_transformers && !keys.has(warmup_steps)) {
        scheduler.warmup_num_steps = 0;
        keys.derive(warmup_steps, make_value(int64_t{0}), type->text + "'s default");
    } else {
        scheduler.warmup_num_steps = keys.take_integer(warmup_steps);
    }
    if (!of_transformers) scheduler.warmup_type = take_warmup_type(keys);
    const int64_t steps = run.steps;
    if (steps > 0 && scheduler.warmup_num_steps > steps &&
        keys.has("scheduler.params.warmup_num_steps")) {
        keys.warn(
            "scheduler.params.warmup_num_steps",
            fmt::format("is more than the run's {} steps: the learning rate never reaches its "
                        "full value",
                        steps));
    }
    if (of_transformers) return ratio_schedule(keys, run, type->text);
    if (type->text == "WarmupCosineLR") return cosine(keys, run);
    warmup(keys, run, type->text);
}

}  // namespace dslaunch::config
