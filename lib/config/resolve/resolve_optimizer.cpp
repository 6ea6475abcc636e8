// The run config's optimizer and learning rate.
#include "base/text.h"
#include "config/read/quoteless.h"
#include "config/resolve/resolver.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::config {

void Resolver::optimizer() {
    const std::vector<std::string> later = {"muadam", "muadamw", "musgd"};
    const Value* type = given("optimizer.type");
    const Value* section = find_path(root_, "optimizer");
    if (type == nullptr) {
        // --lr alone, or a resumed run's rate, changes the default optimizer.
        const bool is_written =
            section != nullptr && section->origin != "--set" && section->origin != kBegunOrigin;
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
                                    : fmt::format("unknown optimizer {}", shown(*type));
        if (!known) {
            auto near = nearest(type->text, names);
            message += near ? fmt::format(", did you mean `{}`?", *near)
                            : fmt::format(": use {}", types_text("optimizer"));
        }
        return problem("optimizer.type", message);
    }
    record("optimizer.type", *type, type->origin);
    const std::string eps = "optimizer.params.eps";
    if (name == "adafactor") return adafactor();
    if (const Value* const two = given(eps); two != nullptr && two->is(Value::Kind::kList))
        return problem(eps, fmt::format("{} has one: give a number", type->text));
    if (name == "sgd") return sgd();
    if (name == "adagrad") return adagrad();
    if (name == "lion") return lion();
    if (name == "lamb") return lamb();
    if (name == "muon") return muon();
    if (name == "onebitadam") return one_bit(OptimizerKind::kOneBitAdam);
    if (name == "zerooneadam") return one_bit(OptimizerKind::kZeroOneAdam);
    if (name == "onebitlamb") return one_bit(OptimizerKind::kOneBitLamb);
    adam(name == "adamw");
}

std::optional<Betas> Resolver::betas_of(const std::string& path, const Value& value) {
    auto share = [](const Value& one) {
        bool number = one.is(Value::Kind::kInt) || one.is(Value::Kind::kFloat);
        return number && one.as_double() >= 0 && one.as_double() < 1;
    };
    if (value.items.size() == 2 && share(value.items[0]) && share(value.items[1]))
        return Betas{value.items[0].as_double(), value.items[1].as_double()};
    problem(path, "must be two numbers from 0 to below 1, as [0.9, 0.999]");
    return std::nullopt;
}

void Resolver::betas() {
    const std::string path = "optimizer.params.betas";
    const std::optional<Betas> betas = betas_of(path, take(path));
    if (!betas) return;
    run_config().optimizer.beta1 = betas->beta1;
    run_config().optimizer.beta2 = betas->beta2;
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
    optimizer.lr = take_rate();
    betas();
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
    optimizer.maximize = take_bool(params + "maximize");
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
    optimizer.maximize = take_bool(params + "maximize");
}

void Resolver::lion() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kLion;
    optimizer.lr = take_number(params + "lr");
    optimizer.weight_decay = take_number(params + "weight_decay");
    betas();
}

// The published rule, as DeepSpeed's FusedLamb has it.
void Resolver::lamb() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kLamb;
    optimizer.lr = take_number(params + "lr");
    betas();
    optimizer.eps = take_number(params + "eps");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.bias_correction = take_bool(params + "bias_correction");
    ratio_bounds("coeff", optimizer.min_coeff, optimizer.max_coeff, /*min_first=*/true);
}

// Takes WHAT's least and largest value, "min_coeff" or "coeff_min" and the like.
void Resolver::ratio_bounds(const std::string& what, double& least, double& largest,
                            bool min_first) {
    const auto path = [&](const char* end) {
        return "optimizer.params." +
               (min_first ? fmt::format("{}_{}", end, what) : fmt::format("{}_{}", what, end));
    };
    least = take_number(path("min"));
    largest = take_number(path("max"));
    if (least > largest)
        problem(path("min"), fmt::format("{} is above {}, which is {}", least,
                                         path("max").substr(path("max").rfind('.') + 1), largest));
}

// transformers' Adafactor, whose rates are its own unless relative_step is false.
void Resolver::adafactor() {
    OptimizerConfig& optimizer = run_config().optimizer;
    AdafactorConfig& own = optimizer.adafactor;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kAdafactor;
    if (const Value* const eps = given(params + "eps")) {
        if (eps->is(Value::Kind::kList)) {
            record(params + "eps", *eps, eps->origin);
            own.square_eps = eps->items[0].as_double();
            own.scale_eps = eps->items[1].as_double();
        } else {
            problem(params + "eps", "Adafactor has two, as [1e-30, 1e-3]");
        }
    } else {
        Value both;
        both.kind = Value::Kind::kList;
        both.items = {make_value(own.square_eps), make_value(own.scale_eps)};
        derive(params + "eps", std::move(both), "Adafactor's default");
    }
    own.clip_threshold = take_number(params + "clip_threshold");
    own.decay_rate = take_number(params + "decay_rate");
    if (own.decay_rate >= 0) problem(params + "decay_rate", "must be negative");
    own.first_moment = given(params + "beta1") != nullptr;
    optimizer.beta1 = own.first_moment ? take_number(params + "beta1") : 0;
    if (optimizer.beta1 >= 1) problem(params + "beta1", "must be below 1");
    optimizer.weight_decay = take_number(params + "weight_decay");
    own.scale_parameter = take_bool(params + "scale_parameter");
    relative_step();
}

void Resolver::relative_step() {
    const std::string params = "optimizer.params.";
    SchedulerConfig& scheduler = run_config().scheduler;
    scheduler.warmup_init = take_bool(params + "warmup_init");
    if (!take_bool(params + "relative_step")) {
        if (scheduler.warmup_init) problem(params + "warmup_init", "is read with relative_step");
        run_config().optimizer.lr = take_number(params + "lr");
        return;
    }
    if (given(params + "lr") != nullptr || is_auto(params + "lr"))
        problem(params + "lr",
                "relative_step, which is true by default, makes the rate from the step alone: set "
                "it to false, or leave lr out");
    if (given("scheduler.type") != nullptr)
        problem("scheduler.type",
                "relative_step, which is true by default, makes the rate from the step alone: set "
                "it to false, or leave the scheduler out");
    scheduler.kind = SchedulerKind::kRelativeStep;
    run_config().optimizer.lr = 1;
    derive(params + "lr", make_value(1.0), "relative_step makes the rate from the step");
}

// Muon for hidden matrices and AdamW for the rest, with the defaults of DeepSpeed's
// MuonWithAuxAdam.
void Resolver::muon() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kMuon;
    const bool one_rate = given(params + "lr") != nullptr || is_auto(params + "lr");
    const double lr = one_rate ? take_number(params + "lr") : 0;
    const std::string whose = one_rate ? "optimizer.params.lr" : "Muon's default";
    optimizer.lr = number_or(params + "muon_lr", one_rate ? lr : 0.02, whose);
    optimizer.rest_lr = number_or(params + "adam_lr", one_rate ? lr : 3e-4, whose);
    optimizer.momentum = number_or(params + "momentum", 0.95, "Muon's default");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.newton_schulz = take_text(params + "ns_method") == "standard"
                                  ? NewtonSchulz::kStandard
                                  : NewtonSchulz::kGram;
    optimizer.beta2 = 0.95;
    optimizer.eps = number_or(params + "eps", 1e-10, "Muon's default for AdamW");
    unread(params + "torch_adam", "AdamW updates what Muon does not, as torch.optim's does");
    if (!take_bool(params + "adam_w_mode"))
        problem(params + "adam_w_mode",
                "what Muon does not update has decoupled weight decay: "
                "remove the key");
    const std::string betas_path = params + "betas";
    if (given(betas_path) != nullptr) return betas();
    Value both;
    both.kind = Value::Kind::kList;
    both.items = {make_value(optimizer.beta1), make_value(optimizer.beta2)};
    derive(betas_path, std::move(both), "Muon's default for AdamW");
}

void Resolver::parameter_groups() {
    if (run_config().optimizer.needs_whole_tensors() && run_config().tensor.size > 1)
        problem("dslaunch.tensor.size",
                fmt::format("ranks that share layers have parts of tensors, and {} updates whole "
                            "tensors: use another optimizer, or dslaunch.sequence.size",
                            find_path(root_, "optimizer.type")->text));
    moments_in_memory();
    run_config().decays_matrices_only = take_text("dslaunch.optimizer.decay") == "matrices";
    const std::string path = "dslaunch.optimizer.groups";
    const Value* const groups = given(path);
    if (groups == nullptr) return;
    record(path, *groups, groups->origin);
    for (size_t i = 0; i < groups->items.size(); ++i)
        parameter_group(fmt::format("{}[{}]", path, i), groups->items[i]);
}

void Resolver::moments_in_memory() {
    const std::string path = "dslaunch.optimizer.states";
    const std::string word = take_text(path);
    run_config().states = word == "bf16"   ? MomentFormat::kBf16
                          : word == "int8" ? MomentFormat::kInt8
                                           : MomentFormat::kFp32;
    if (run_config().states == MomentFormat::kFp32) return;
    if (run_config().optimizer.needs_whole_tensors())
        problem(path, fmt::format("{} is not there for {}, which updates whole tensors: use fp32",
                                  word, find_path(root_, "optimizer.type")->text));
}

void Resolver::parameter_group(const std::string& path, const Value& value) {
    const OptimizerConfig& optimizer = run_config().optimizer;
    ParameterGroup& group = run_config().parameter_groups.emplace_back();
    const auto number = [&](const char* name) -> std::optional<double> {
        const Value* const found = value.find(name);
        if (found == nullptr || found->is(Value::Kind::kNull)) return std::nullopt;
        return found->as_double();
    };
    if (const Value* const match = value.find("match")) group.match = texts_of(*match);
    if (group.match.empty()) problem(path, "needs `match`, the names of its parameters");
    group.lr = number("lr");
    group.weight_decay = number("weight_decay");
    group.eps = number("eps");
    if (group.lr && optimizer.lr == 0)
        problem(path + ".lr",
                "has no meaning beside an optimizer.params.lr of 0, which schedules "
                "multiply");
    if (group.lr && optimizer.kind == OptimizerKind::kAdafactor &&
        run_config().scheduler.kind == SchedulerKind::kRelativeStep)
        problem(path + ".lr", "has no meaning beside relative_step");
    if (optimizer.kind == OptimizerKind::kAdafactor &&
        (group.eps || value.find("betas") != nullptr))
        problem(path, "Adafactor's groups change lr and weight_decay alone");
    const Value* const betas = value.find("betas");
    if (betas != nullptr && !betas->is(Value::Kind::kNull)) {
        const std::optional<Betas> both = betas_of(path + ".betas", *betas);
        if (both) group.beta1 = both->beta1, group.beta2 = both->beta2;
    }
    const Value* const muon = value.find("muon");
    if (muon == nullptr || muon->is(Value::Kind::kNull)) return;
    group.muon = muon->boolean;
    if (optimizer.kind != OptimizerKind::kMuon)
        problem(path + ".muon", "is read only with optimizer.type Muon");
}

// Weight decay is decoupled and nothing is corrected, as in DeepSpeed's code of all three.
void Resolver::one_bit(OptimizerKind kind) {
    OptimizerConfig& optimizer = run_config().optimizer;
    OneBitConfig& phases = optimizer.one_bit;
    const std::string params = "optimizer.params.";
    optimizer.kind = kind;
    optimizer.lr = kind == OptimizerKind::kOneBitLamb ? take_number(params + "lr") : take_rate();
    betas();
    optimizer.eps = take_number(params + "eps");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.bias_correction = false;
    if (const Value* correction = given(params + "bias_correction");
        correction != nullptr && correction->boolean)
        note(
            params + "bias_correction",
            "has no effect: this optimizer corrects no start of the moments, in DeepSpeed neither");
    if (kind != OptimizerKind::kZeroOneAdam)
        phases.freeze_step = take_integer(params + "freeze_step");
    if (kind == OptimizerKind::kOneBitLamb) {
        ratio_bounds("coeff", optimizer.min_coeff, optimizer.max_coeff, /*min_first=*/true);
        phases.coeff_beta = take_number(params + "coeff_beta");
        if (phases.coeff_beta >= 1) problem(params + "coeff_beta", "must be below 1");
        ratio_bounds("factor", phases.factor_min, phases.factor_max, /*min_first=*/false);
        phases.factor_threshold = take_number(params + "factor_threshold");
    }
    if (kind != OptimizerKind::kZeroOneAdam) return;
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
        problem(path, fmt::format("{} with OneBitAdam, ZeroOneAdam and OneBitLamb in this version: "
                                  "remove it, or use AdamW",
                                  what));
    };
    if (run.tensor.size > 1) refuse("dslaunch.tensor.size", "ranks do not share layers");
    if (run.sequence.size > 1) refuse("dslaunch.sequence.size", "ranks do not share positions");
    if (!run.parameter_groups.empty() || run.decays_matrices_only)
        refuse("dslaunch.optimizer", "all parameters have the same numbers");
    if (run.states != MomentFormat::kFp32) refuse("dslaunch.optimizer.states", "moments are fp32");
    if (!run.precision.master_copies)
        refuse("bf16.bf16_master_weights_and_grads", "master weights are fp32");
    const WireConfig& wire = run.zero.wire;
    if (wire.gradients != WireChoice::kOff)
        refuse("zero_optimization.zero_quantized_gradients", "gradients are not packed again");
    if (wire.parameters != WireChoice::kOff || wire.host_copy_ranks != 1)
        refuse("zero_optimization", "no parameters are gathered between hosts, so ZeRO++ is not");
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
    optimizer.maximize = take_bool(params + "maximize");
    if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
        problem(params + "nesterov", "needs a momentum above 0 and a dampening of 0");
    }
}

}  // namespace dslaunch::config
