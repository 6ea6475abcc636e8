// The run config's optimizer and learning rate.
#include "base/text.h"
#include "config/resolve/resolver.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::config {

namespace {

using Kind = Value::Kind;

// "A, B or C", the types that SECTION may have.
std::string types_text(std::string_view section) {
    std::vector<std::string> types = available_types(section);
    const std::string last = types.back();
    types.pop_back();
    return join(types, ", ") + " or " + last;
}

}  // namespace

void Resolver::optimizer() {
    const std::vector<std::string> later = {"lamb",   "onebitadam", "onebitlamb", "zerooneadam",
                                            "muadam", "muadamw",    "musgd",      "muon"};
    const Value* type = given("optimizer.type");
    const Value* section = find_path(root_, "optimizer");
    if (type == nullptr) {
        // --lr alone changes the default optimizer.
        const bool is_written = section != nullptr && section->origin != "--set";
        if (is_written && section->is(Kind::kObject) && !section->items.empty()) {
            problem("optimizer", fmt::format("has no `type`: give {}", types_text("optimizer")));
        }
        record("optimizer.type", make_value(std::string("AdamW")), "default");
        return adam(true);
    }
    std::string name = lower(type->text);
    const std::vector<std::string>& names = available_types("optimizer");
    bool there = std::any_of(names.begin(), names.end(),
                             [&](const std::string& one) { return lower(one) == name; });
    if (!there) {
        bool known = std::find(later.begin(), later.end(), name) != later.end();
        std::string message = known ? fmt::format("{} is not available yet in this version: use {}",
                                                  type->text, types_text("optimizer"))
                                    : fmt::format("unknown optimizer {}", describe(*type));
        if (!known) {
            auto near = nearest(type->text, names);
            message += near ? fmt::format(", did you mean `{}`?", *near)
                            : fmt::format(": use {}", types_text("optimizer"));
        }
        return problem("optimizer.type", message);
    }
    record("optimizer.type", *type, type->origin);
    if (name == "sgd") return sgd();
    if (name == "adagrad") return adagrad();
    if (name == "lion") return lion();
    adam(name == "adamw");
}

void Resolver::betas(const Value& value) {
    auto share = [](const Value& one) {
        bool number = one.is(Kind::kInt) || one.is(Kind::kFloat);
        return number && one.as_double() >= 0 && one.as_double() < 1;
    };
    if (value.items.size() != 2 || !share(value.items[0]) || !share(value.items[1])) {
        return problem("optimizer.params.betas",
                       "must be two numbers from 0 to below 1, as [0.9, 0.999]");
    }
    run_config().optimizer.beta1 = value.items[0].as_double();
    run_config().optimizer.beta2 = value.items[1].as_double();
}

double Resolver::number_or(const std::string& path, double value, const std::string& whose) {
    if (given(path) != nullptr || is_auto(path)) return take_number(path);
    derive(path, make_value(value), whose);
    return value;
}

// DeepSpeed's "Adam" decays decoupled unless adam_w_mode is false; "AdamW" always does.
void Resolver::adam(bool named_adamw) {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    bool decoupled = take_bool(params + "adam_w_mode") || named_adamw;
    bool torch_adam = take_bool(params + "torch_adam");
    optimizer.kind = decoupled ? OptimizerKind::kAdamW : OptimizerKind::kAdam;
    optimizer.lr = take_number(params + "lr");
    betas(take(params + "betas"));
    optimizer.eps = take_number(params + "eps");
    bool torch_default = torch_adam && decoupled && given(params + "weight_decay") == nullptr &&
                         !is_auto(params + "weight_decay");
    if (torch_default) {
        optimizer.weight_decay = 0.01;
        derive(params + "weight_decay", make_value(0.01),
               "torch.optim.AdamW's default, by torch_adam");
    } else {
        optimizer.weight_decay = take_number(params + "weight_decay");
    }
    optimizer.bias_correction = take_bool(params + "bias_correction");
}

void Resolver::adagrad() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kAdagrad;
    optimizer.lr = number_or(params + "lr", 1e-2, "Adagrad's default");
    optimizer.eps = number_or(params + "eps", 1e-10, "Adagrad's default");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.lr_decay = take_number(params + "lr_decay");
    optimizer.initial_accumulator_value = take_number(params + "initial_accumulator_value");
}

void Resolver::lion() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kLion;
    optimizer.lr = take_number(params + "lr");
    optimizer.weight_decay = take_number(params + "weight_decay");
    betas(take(params + "betas"));
}

void Resolver::sgd() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kSgd;
    optimizer.lr = take_number(params + "lr");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.momentum = take_number(params + "momentum");
    optimizer.dampening = take_number(params + "dampening");
    optimizer.nesterov = take_bool(params + "nesterov");
    if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
        problem(params + "nesterov", "needs a momentum above 0 and a dampening of 0");
    }
}

void Resolver::scheduler() {
    const Value* type = given("scheduler.type");
    const Value* section = find_path(root_, "scheduler");
    if (type == nullptr) {
        if (section != nullptr && section->is(Kind::kObject) && !section->items.empty()) {
            problem("scheduler", fmt::format("has no `type`: give {}", types_text("scheduler")));
        }
        return;
    }
    const std::vector<std::string>& names = available_types("scheduler");
    if (type->text == "OneCycle" || type->text == "LRRangeTest") {
        return problem("scheduler.type",
                       fmt::format("{} is not available yet in this version: use {}", type->text,
                                   types_text("scheduler")));
    }
    if (std::find(names.begin(), names.end(), type->text) == names.end()) {
        auto near = nearest(type->text, names);
        return problem("scheduler.type",
                       fmt::format("unknown scheduler {}{}", describe(*type),
                                   near ? fmt::format(", did you mean `{}`?", *near)
                                        : ": use " + types_text("scheduler")));
    }
    record("scheduler.type", *type, type->origin);
    SchedulerConfig& scheduler = run_config().scheduler;
    scheduler.warmup_num_steps = take_integer("scheduler.params.warmup_num_steps");
    scheduler.warmup_type = take_warmup_type();
    const int64_t steps = run_config().steps;
    if (steps > 0 && scheduler.warmup_num_steps > steps &&
        given("scheduler.params.warmup_num_steps") != nullptr) {
        note("scheduler.params.warmup_num_steps",
             fmt::format("is more than the run's {} steps: the learning rate never reaches its "
                         "full value",
                         steps));
    }
    if (type->text == "WarmupCosineLR") return cosine();
    warmup(type->text);
}

WarmupType Resolver::take_warmup_type() {
    const std::string path = "scheduler.params.warmup_type";
    const Value* shape = given(path);
    if (shape == nullptr || shape->text == "log" || shape->text == "linear")
        return take_text(path) == "linear" ? WarmupType::kLinear : WarmupType::kLog;
    const std::string said = describe(*shape);
    note(path,
         fmt::format("is {}, which DeepSpeed does not know: the warm-up is log, as there", said));
    derive(path, make_value(std::string("log")), "DeepSpeed takes it for " + said);
    return WarmupType::kLog;
}

void Resolver::warmup(const std::string& type) {
    SchedulerConfig& scheduler = run_config().scheduler;
    bool decay = type == "WarmupDecayLR";
    scheduler.kind = decay ? SchedulerKind::kWarmupDecayLr : SchedulerKind::kWarmupLr;
    scheduler.warmup_min_lr = take_number("scheduler.params.warmup_min_lr");
    const std::string max_path = "scheduler.params.warmup_max_lr";
    if (given(max_path) == nullptr && (!decay || is_auto(max_path))) {
        scheduler.warmup_max_lr = run_config().optimizer.lr;
        derive(max_path, make_value(scheduler.warmup_max_lr), "optimizer.params.lr");
    } else {
        scheduler.warmup_max_lr = take_number(max_path);
    }
    if (decay) total_steps();
}

void Resolver::cosine() {
    SchedulerConfig& scheduler = run_config().scheduler;
    scheduler.kind = SchedulerKind::kWarmupCosineLr;
    scheduler.warmup_min_ratio = take_number("scheduler.params.warmup_min_ratio");
    scheduler.cos_min_ratio = take_number("scheduler.params.cos_min_ratio");
    total_steps();
}

void Resolver::total_steps() {
    const std::string path = "scheduler.params.total_num_steps";
    int64_t& total = run_config().scheduler.total_num_steps;
    if (given(path) != nullptr) {
        total = take_integer(path);
    } else if (!is_auto(path)) {
        problem(path,
                "is required: the step at which the decay ends, or \"auto\" for the run's steps");
    } else if (run_config().steps > 0) {
        total = run_config().steps;
        derive(path, make_value(total), "the run's steps");
    } else {
        derive(path, make_value(std::string("auto")), "the run's steps (--steps or --epochs)");
    }
}

}  // namespace dslaunch::config
