// The run config's optimizer and learning rate.
#include "base/text.h"
#include "config/resolve/resolver.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::config {

void Resolver::optimizer() {
    const std::vector<std::string> later = {"lamb",    "onebitlamb", "muadam",
                                            "muadamw", "musgd",      "muon"};
    const Value* type = given("optimizer.type");
    const Value* section = find_path(root_, "optimizer");
    if (type == nullptr) {
        // --lr alone changes the default optimizer.
        const bool is_written = section != nullptr && section->origin != "--set";
        if (is_written && section->is(Value::Kind::kObject) && !section->items.empty()) {
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
    if (name == "onebitadam") return one_bit(OptimizerKind::kOneBitAdam);
    if (name == "zerooneadam") return one_bit(OptimizerKind::kZeroOneAdam);
    adam(name == "adamw");
}

void Resolver::betas(const Value& value) {
    auto share = [](const Value& one) {
        bool number = one.is(Value::Kind::kInt) || one.is(Value::Kind::kFloat);
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

int64_t Resolver::integer_or(const std::string& path, int64_t value, const std::string& whose) {
    if (given(path) != nullptr || is_auto(path)) return take_integer(path);
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

// Weight decay is decoupled and nothing is corrected, as in DeepSpeed's code of both.
void Resolver::one_bit(OptimizerKind kind) {
    OptimizerConfig& optimizer = run_config().optimizer;
    OneBitConfig& phases = optimizer.one_bit;
    const std::string params = "optimizer.params.";
    optimizer.kind = kind;
    optimizer.lr = take_number(params + "lr");
    betas(take(params + "betas"));
    optimizer.eps = take_number(params + "eps");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.bias_correction = false;
    if (const Value* correction = given(params + "bias_correction");
        correction != nullptr && correction->boolean)
        note(
            params + "bias_correction",
            "has no effect: this optimizer corrects no start of the moments, in DeepSpeed neither");
    if (kind == OptimizerKind::kOneBitAdam) {
        phases.freeze_step = take_integer(params + "freeze_step");
        return;
    }
    phases.var_freeze_step = take_integer(params + "var_freeze_step");
    phases.var_update_scaler = take_integer(params + "var_update_scaler");
    phases.local_step_scaler = take_integer(params + "local_step_scaler");
    phases.local_step_clipper = take_integer(params + "local_step_clipper");
}

// REQUIRES: all sections that are looked at have been resolved.
void Resolver::compression() {
    const RunConfig& run = run_config();
    if (!run.optimizer.compresses()) return;
    const auto refuse = [&](const char* path, const char* what) {
        problem(path,
                fmt::format("{} with OneBitAdam and ZeroOneAdam in this version: remove it, or "
                            "use AdamW",
                            what));
    };
    if (run.tensor.size > 1) refuse("dslaunch.tensor.size", "ranks do not share layers");
    if (run.sequence.size > 1) refuse("dslaunch.sequence.size", "ranks do not share positions");
    const char* const passing = "states are exchanged where they are, so none pass through disks,";
    if (run.offload.optimizer != OffloadDevice::kNone)
        refuse("zero_optimization.offload_optimizer", passing);
    if (run.offload.parameters != OffloadDevice::kNone)
        refuse("zero_optimization.offload_param", passing);
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

}  // namespace dslaunch::config
