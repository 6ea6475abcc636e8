// Resolves the optimizer and the learning rate.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/read/quoteless.h"
#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {

namespace {

std::optional<Betas> betas_of(KeyReader& keys, const std::string& path, const Value& value) {
    auto share = [](const Value& one) {
        bool number = one.is(Value::Kind::kInt) || one.is(Value::Kind::kFloat);
        return number && one.as_double() >= 0 && one.as_double() < 1;
    };
    if (value.items.size() == 2 && share(value.items[0]) && share(value.items[1]))
        return Betas{value.items[0].as_double(), value.items[1].as_double()};
    keys.problem(path, "must be two numbers, at least 0 and below 1, e.g. [0.9, 0.999]");
    return std::nullopt;
}

void betas(KeyReader& keys, RunConfig& run) {
    const std::string path = "optimizer.params.betas";
    const std::optional<Betas> betas = betas_of(keys, path, keys.take(path));
    if (!betas) return;
    run.optimizer.beta1 = betas->beta1;
    run.optimizer.beta2 = betas->beta2;
}

// Reads Adam. DeepSpeed's "Adam" has decoupled weight decay unless adam_w_mode is false; "AdamW"
// always has it.
void adam(KeyReader& keys, RunConfig& run, bool named_adamw) {
    OptimizerConfig& optimizer = run.optimizer;
    const std::string params = "optimizer.params.";
    bool decoupled = keys.take_bool(params + "adam_w_mode") || named_adamw;
    bool torch_adam = keys.take_bool(params + "torch_adam");
    optimizer.kind = decoupled ? OptimizerKind::kAdamW : OptimizerKind::kAdam;
    optimizer.lr = take_rate(keys, run);
    betas(keys, run);
    optimizer.eps = keys.take_number(params + "eps");
    bool torch_default = torch_adam && decoupled && !keys.has_or_auto(params + "weight_decay");
    if (torch_default) {
        optimizer.weight_decay = 0.01;
        keys.derive(params + "weight_decay", make_value(0.01),
                    "torch.optim.AdamW's default, because torch_adam is true");
    } else {
        optimizer.weight_decay = keys.take_number(params + "weight_decay");
    }
    optimizer.bias_correction = keys.take_bool(params + "bias_correction");
    optimizer.maximize = keys.take_bool(params + "maximize");
    optimizer.amsgrad = keys.take_bool(params + "amsgrad");
}

// Refuses amsgrad for optimizers other than Adam and AdamW.
void no_amsgrad(KeyReader& keys) {
    const std::string path = "optimizer.params.amsgrad";
    if (keys.take_bool(path))
        keys.problem(path, fmt::format("{} cannot keep the largest second moment; only Adam and "
                                       "AdamW can, as in DeepSpeed: remove the key",
                                       keys.optimizer_name()));
}

void adagrad(KeyReader& keys, RunConfig& run) {
    OptimizerConfig& optimizer = run.optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kAdagrad;
    optimizer.lr = keys.number_or(params + "lr", 1e-2, "Adagrad's default");
    optimizer.eps = keys.number_or(params + "eps", 1e-10, "Adagrad's default");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    optimizer.lr_decay = keys.take_number(params + "lr_decay");
    optimizer.initial_accumulator_value = keys.take_number(params + "initial_accumulator_value");
    optimizer.maximize = keys.take_bool(params + "maximize");
}

void lion(KeyReader& keys, RunConfig& run) {
    OptimizerConfig& optimizer = run.optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kLion;
    optimizer.lr = keys.take_number(params + "lr");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    betas(keys, run);
}

// Reads the keys for the smallest and the largest value of WHAT. If MIN_FIRST is true, the keys of
// "coeff" are "min_coeff" and "max_coeff"; otherwise "coeff_min" and "coeff_max".
void ratio_bounds(KeyReader& keys, const std::string& what, double& least, double& largest,
                  bool min_first) {
    const auto path = [&](const char* end) {
        return "optimizer.params." +
               (min_first ? fmt::format("{}_{}", end, what) : fmt::format("{}_{}", what, end));
    };
    least = keys.take_number(path("min"));
    largest = keys.take_number(path("max"));
    if (least > largest)
        keys.problem(path("min"),
                     fmt::format("{} is above {}, which is {}", least,
                                 path("max").substr(path("max").rfind('.') + 1), largest));
}

// Reads LAMB, with the published rule, as in DeepSpeed's FusedLamb.
void lamb(KeyReader& keys, RunConfig& run) {
    OptimizerConfig& optimizer = run.optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kLamb;
    optimizer.lr = keys.take_number(params + "lr");
    betas(keys, run);
    optimizer.eps = keys.take_number(params + "eps");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    optimizer.bias_correction = keys.take_bool(params + "bias_correction");
    ratio_bounds(keys, "coeff", optimizer.min_coeff, optimizer.max_coeff, /*min_first=*/true);
    optimizer.eps_inside_sqrt = keys.take_bool(params + "eps_inside_sqrt");
    no_amsgrad(keys);
}

void relative_step(KeyReader& keys, RunConfig& run) {
    const std::string params = "optimizer.params.";
    SchedulerConfig& scheduler = run.scheduler;
    scheduler.warmup_init = keys.take_bool(params + "warmup_init");
    if (!keys.take_bool(params + "relative_step")) {
        if (scheduler.warmup_init)
            keys.problem(params + "warmup_init", "is used only with relative_step");
        run.optimizer.lr = keys.take_number(params + "lr");
        return;
    }
    if (keys.has_or_auto(params + "lr"))
        keys.problem(params + "lr",
                     "relative_step, which is true by default, computes the rate from the step "
                     "alone: set relative_step to false, or remove lr");
    if (keys.has("scheduler.type"))
        keys.problem("scheduler.type",
                     "relative_step, which is true by default, computes the rate from the step "
                     "alone: set relative_step to false, or remove the scheduler");
    scheduler.kind = SchedulerKind::kRelativeStep;
    run.optimizer.lr = 1;
    keys.derive(params + "lr", make_value(1.0), "relative_step computes the rate from the step");
}

// Reads transformers' Adafactor, which computes its own learning rates unless relative_step is
// false.
void adafactor(KeyReader& keys, RunConfig& run) {
    OptimizerConfig& optimizer = run.optimizer;
    AdafactorConfig& own = optimizer.adafactor;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kAdafactor;
    if (const Value* const eps = keys.given(params + "eps")) {
        if (eps->is(Value::Kind::kList)) {
            keys.record(params + "eps", *eps, eps->origin);
            own.square_eps = eps->items[0].as_double();
            own.scale_eps = eps->items[1].as_double();
        } else {
            keys.problem(params + "eps", "must be two numbers for Adafactor, e.g. [1e-30, 1e-3]");
        }
    } else {
        Value both;
        both.kind = Value::Kind::kList;
        both.items = {make_value(own.square_eps), make_value(own.scale_eps)};
        keys.derive(params + "eps", std::move(both), "Adafactor's default");
    }
    own.clip_threshold = keys.take_number(params + "clip_threshold");
    own.decay_rate = keys.take_number(params + "decay_rate");
    if (own.decay_rate >= 0) keys.problem(params + "decay_rate", "must be negative");
    own.first_moment = keys.has(params + "beta1");
    optimizer.beta1 = own.first_moment ? keys.take_number(params + "beta1") : 0;
    if (optimizer.beta1 >= 1) keys.problem(params + "beta1", "must be below 1");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    own.scale_parameter = keys.take_bool(params + "scale_parameter");
    relative_step(keys, run);
}

// Reads Muon for hidden matrices and AdamW for all other parameters, with the defaults of
// DeepSpeed's MuonWithAuxAdam.
void muon(KeyReader& keys, RunConfig& run) {
    OptimizerConfig& optimizer = run.optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kMuon;
    const bool one_rate = keys.has_or_auto(params + "lr");
    const double lr = one_rate ? keys.take_number(params + "lr") : 0;
    const std::string whose = one_rate ? "optimizer.params.lr" : "Muon's default";
    optimizer.lr = keys.number_or(params + "muon_lr", one_rate ? lr : 0.02, whose);
    optimizer.rest_lr = keys.number_or(params + "adam_lr", one_rate ? lr : 3e-4, whose);
    optimizer.momentum = keys.number_or(params + "momentum", 0.95, "Muon's default");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    optimizer.newton_schulz = keys.take_text(params + "ns_method") == "standard"
                                  ? NewtonSchulz::kStandard
                                  : NewtonSchulz::kGram;
    optimizer.beta2 = 0.95;
    optimizer.eps = keys.number_or(params + "eps", 1e-10, "Muon's default for AdamW");
    keys.unread(params + "torch_adam",
                "AdamW updates what Muon does not, in the same way as torch.optim's AdamW");
    if (!keys.take_bool(params + "adam_w_mode"))
        keys.problem(params + "adam_w_mode",
                     "must be true: parameters that Muon does not update always have decoupled "
                     "weight decay; remove the key");
    const std::string betas_path = params + "betas";
    if (keys.has(betas_path)) return betas(keys, run);
    Value both;
    both.kind = Value::Kind::kList;
    both.items = {make_value(optimizer.beta1), make_value(optimizer.beta2)};
    keys.derive(betas_path, std::move(both), "Muon's default for AdamW");
}

// Reads 1-bit Adam, 0/1 Adam and 1-bit LAMB. Weight decay is decoupled and there is no bias
// correction, as in DeepSpeed's code.
void one_bit(KeyReader& keys, RunConfig& run, OptimizerKind kind) {
    OptimizerConfig& optimizer = run.optimizer;
    OneBitConfig& phases = optimizer.one_bit;
    const std::string params = "optimizer.params.";
    optimizer.kind = kind;
    optimizer.lr =
        kind == OptimizerKind::kOneBitLamb ? keys.take_number(params + "lr") : take_rate(keys, run);
    betas(keys, run);
    optimizer.eps = keys.take_number(params + "eps");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    optimizer.bias_correction = false;
    if (const Value* correction = keys.given(params + "bias_correction");
        correction != nullptr && correction->boolean)
        keys.note(params + "bias_correction",
                  "has no effect: this optimizer has no bias correction, as in DeepSpeed");
    no_amsgrad(keys);
    if (kind != OptimizerKind::kZeroOneAdam)
        phases.freeze_step = keys.take_integer(params + "freeze_step");
    if (kind == OptimizerKind::kOneBitLamb) {
        ratio_bounds(keys, "coeff", optimizer.min_coeff, optimizer.max_coeff,
                     /*min_first=*/true);
        keys.unread(params + "eps_inside_sqrt",
                    "1-bit LAMB always adds eps to the root, as in DeepSpeed's code");
        phases.coeff_beta = keys.take_number(params + "coeff_beta");
        if (phases.coeff_beta >= 1) keys.problem(params + "coeff_beta", "must be below 1");
        ratio_bounds(keys, "factor", phases.factor_min, phases.factor_max,
                     /*min_first=*/false);
        phases.factor_threshold = keys.take_number(params + "factor_threshold");
    }
    if (kind != OptimizerKind::kZeroOneAdam) return;
    phases.var_freeze_step = keys.take_integer(params + "var_freeze_step");
    phases.var_update_scaler = keys.take_integer(params + "var_update_scaler");
    phases.local_step_scaler = keys.take_integer(params + "local_step_scaler");
    phases.local_step_clipper = keys.take_integer(params + "local_step_clipper");
}

void sgd(KeyReader& keys, RunConfig& run) {
    OptimizerConfig& optimizer = run.optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kSgd;
    optimizer.lr = keys.take_number(params + "lr");
    optimizer.weight_decay = keys.take_number(params + "weight_decay");
    optimizer.momentum = keys.take_number(params + "momentum");
    optimizer.dampening = keys.take_number(params + "dampening");
    optimizer.nesterov = keys.take_bool(params + "nesterov");
    optimizer.maximize = keys.take_bool(params + "maximize");
    if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
        keys.problem(params + "nesterov", "needs a momentum above 0 and a dampening of 0");
    }
}

void moments_in_memory(KeyReader& keys, RunConfig& run) {
    const std::string path = "dslaunch.optimizer.states";
    const std::string word = keys.take_text(path);
    run.states = word == "bf16"   ? MomentFormat::kBf16
                 : word == "int8" ? MomentFormat::kInt8
                                  : MomentFormat::kFp32;
    if (run.states == MomentFormat::kFp32) return;
    if (run.optimizer.amsgrad)
        keys.problem(path,
                     fmt::format("{} is not supported with amsgrad, because stochastic rounding "
                                 "makes the largest second moment grow with every step: use fp32",
                                 word));
    if (run.optimizer.needs_whole_tensors())
        keys.problem(
            path, fmt::format("{} is not supported for {}, which updates whole tensors: use fp32",
                              word, keys.optimizer_name()));
}

void parameter_group(KeyReader& keys, RunConfig& run, const std::string& path, const Value& value) {
    const OptimizerConfig& optimizer = run.optimizer;
    ParameterGroup& group = run.parameter_groups.emplace_back();
    const auto number = [&](const char* name) -> std::optional<double> {
        const Value* const found = value.find(name);
        if (found == nullptr || found->is(Value::Kind::kNull)) return std::nullopt;
        return found->as_double();
    };
    if (const Value* const match = value.find("match")) group.match = texts_of(*match);
    if (group.match.empty()) keys.problem(path, "needs `match`, the names of its parameters");
    group.lr = number("lr");
    group.weight_decay = number("weight_decay");
    group.eps = number("eps");
    if (group.lr && optimizer.lr == 0)
        keys.problem(
            path + ".lr",
            "has no meaning if optimizer.params.lr is 0, because schedules are relative to it");
    if (group.lr && optimizer.kind == OptimizerKind::kAdafactor &&
        run.scheduler.kind == SchedulerKind::kRelativeStep)
        keys.problem(path + ".lr", "has no effect with relative_step: remove the key");
    if (optimizer.kind == OptimizerKind::kAdafactor &&
        (group.eps || value.find("betas") != nullptr))
        keys.problem(path, "with Adafactor, groups can set only lr and weight_decay");
    const Value* const betas = value.find("betas");
    if (betas != nullptr && !betas->is(Value::Kind::kNull)) {
        const std::optional<Betas> both = betas_of(keys, path + ".betas", *betas);
        if (both) group.beta1 = both->beta1, group.beta2 = both->beta2;
    }
    const Value* const muon = value.find("muon");
    if (muon == nullptr || muon->is(Value::Kind::kNull)) return;
    group.muon = muon->boolean;
    if (optimizer.kind != OptimizerKind::kMuon)
        keys.problem(path + ".muon", "is used only with optimizer.type Muon");
}

// Returns the text to write in a config for NAME, an optimizer's name in transformers' Trainer,
// axolotl or bitsandbytes. Returns "" for any other name.
std::string own_optimizer(std::string name) {
    std::ranges::replace(name, '-', '_');
    const bool is_8bit = name.ends_with("8bit");
    if (name.starts_with("paged_")) name.erase(0, std::string_view("paged_").size());
    for (const std::string_view ending : {"_8bit", "8bit", "_32bit", "_bnb"})
        if (name.ends_with(ending)) name.erase(name.size() - ending.size());
    static const std::map<std::string, std::string> kTypes = {{"adamw", "AdamW"},
                                                              {"adamw_torch", "AdamW"},
                                                              {"adamw_torch_fused", "AdamW"},
                                                              {"adamw_torch_xla", "AdamW"},
                                                              {"adamw_torch_npu_fused", "AdamW"},
                                                              {"adamw_hf", "AdamW"},
                                                              {"adamw_apex_fused", "AdamW"},
                                                              {"adamw_anyprecision", "AdamW"},
                                                              {"adamw_fused", "AdamW"},
                                                              {"fused_adamw", "AdamW"},
                                                              {"fusedadam", "Adam"},
                                                              {"fused_adam", "Adam"},
                                                              {"deepspeedcpuadam", "Adam"},
                                                              {"cpuadam", "Adam"},
                                                              {"cpu_adam", "Adam"},
                                                              {"adam", "Adam"},
                                                              {"lion", "Lion"}};
    const auto type = kTypes.find(name);
    if (type == kTypes.end()) return "";
    return type->second +
           (is_8bit ? ", with dslaunch.optimizer.states: int8 for moments in 8 bits (needs "
                      "zero_optimization.stage: 1)"
                    : "");
}

}  // namespace

void resolve_optimizer(KeyReader& keys, RunConfig& run) {
    const std::vector<std::string> later = {"muadam", "muadamw", "musgd"};
    const Value* type = keys.given("optimizer.type");
    const Value* section = find_path(keys.root(), "optimizer");
    if (type == nullptr) {
        // An option such as --lr, or a resumed run, can create the optimizer section with nothing
        // but a learning rate. If the user has not written the section, the default optimizer is
        // used.
        const bool is_written = section != nullptr && !section->origin.starts_with("--") &&
                                section->origin != kBegunOrigin;
        if (is_written && section->is(Value::Kind::kObject) && !section->items.empty()) {
            keys.problem("optimizer",
                         fmt::format("has no `type`: give {}", types_text("optimizer")));
        }
        keys.record("optimizer.type", make_value(std::string("AdamW")), "default");
        return adam(keys, run, true);
    }
    std::string name = lower(type->text);
    const auto* const facts =
        std::ranges::find(kOptimizerFacts, std::string_view(name), &OptimizerFacts::name);
    if (facts == kOptimizerFacts.end()) {
        bool known = std::find(later.begin(), later.end(), name) != later.end();
        std::string message = known ? fmt::format("{} is not available yet in this version: use {}",
                                                  type->text, types_text("optimizer"))
                                    : fmt::format("unknown optimizer {}", shown(*type));
        if (const std::string own = own_optimizer(name); !own.empty()) {
            message += fmt::format(", a name in other programs: use {}", own);
        } else if (!known) {
            auto near = nearest(type->text, available_types("optimizer"));
            message += near ? fmt::format(", did you mean `{}`?", *near)
                            : fmt::format(": use {}", types_text("optimizer"));
        }
        return keys.problem("optimizer.type", message);
    }
    keys.record("optimizer.type", *type, type->origin);
    const OptimizerKind kind = facts->kind;
    const std::string eps = "optimizer.params.eps";
    const Value* const two = keys.given(eps);
    if (kind != OptimizerKind::kAdafactor && two != nullptr && two->is(Value::Kind::kList))
        return keys.problem(eps,
                            fmt::format("{} uses a single number: give one number", type->text));
    switch (kind) {
        case OptimizerKind::kAdam:
        case OptimizerKind::kAdamW:
            return adam(keys, run, kind == OptimizerKind::kAdamW);
        case OptimizerKind::kSgd:
            return sgd(keys, run);
        case OptimizerKind::kAdagrad:
            return adagrad(keys, run);
        case OptimizerKind::kLion:
            return lion(keys, run);
        case OptimizerKind::kLamb:
            return lamb(keys, run);
        case OptimizerKind::kMuon:
            return muon(keys, run);
        case OptimizerKind::kAdafactor:
            return adafactor(keys, run);
        case OptimizerKind::kOneBitAdam:
        case OptimizerKind::kZeroOneAdam:
        case OptimizerKind::kOneBitLamb:
            return one_bit(keys, run, kind);
    }
}

void resolve_parameter_groups(KeyReader& keys, RunConfig& run) {
    if (run.optimizer.needs_whole_tensors() && run.tensor.size > 1)
        keys.problem(
            "dslaunch.tensor.size",
            fmt::format("ranks that share layers have only parts of tensors, but {} updates whole "
                        "tensors: use another optimizer, or dslaunch.sequence.size",
                        keys.optimizer_name()));
    if (run.optimizer.weight_decay >= 1)
        keys.warn("optimizer.params.weight_decay",
                  fmt::format(
                      "{:g} is very large: with a learning rate of {:g}, each step shrinks every "
                      "weight by the fraction {:g} (usual values of weight_decay are 0.01 to 0.1)",
                      run.optimizer.weight_decay, run.optimizer.lr,
                      run.optimizer.weight_decay * run.optimizer.lr));
    moments_in_memory(keys, run);
    run.decays_matrices_only = keys.take_text("dslaunch.optimizer.decay") == "matrices";
    const std::string path = "dslaunch.optimizer.groups";
    const Value* const groups = keys.given(path);
    if (groups == nullptr) return;
    keys.record(path, *groups, groups->origin);
    for (size_t i = 0; i < groups->items.size(); ++i)
        parameter_group(keys, run, fmt::format("{}[{}]", path, i), groups->items[i]);
}

// REQUIRES: all sections that are read here have been resolved.
void check_compression(KeyReader& keys, RunConfig& run) {
    if (!run.optimizer.compresses()) return;
    const auto refuse = [&](const char* path, const char* what) {
        keys.problem(path,
                     fmt::format("{} with OneBitAdam, ZeroOneAdam or OneBitLamb in this version: "
                                 "remove the key, or use AdamW",
                                 what));
    };
    if (run.tensor.size > 1) refuse("dslaunch.tensor.size", "ranks cannot share layers");
    if (run.sequence.size > 1) refuse("dslaunch.sequence.size", "ranks cannot share positions");
    if (!run.parameter_groups.empty() || run.decays_matrices_only)
        refuse("dslaunch.optimizer", "all parameters must have the same settings");
    if (run.states != MomentFormat::kFp32)
        refuse("dslaunch.optimizer.states", "moments must be fp32");
    if (!run.precision.master_copies)
        refuse("bf16.bf16_master_weights_and_grads", "master weights must be fp32");
    const WireConfig& wire = run.zero.wire;
    if (wire.gradients != WireChoice::kOff)
        refuse("zero_optimization.zero_quantized_gradients", "gradients cannot be quantized again");
    if (wire.parameters != WireChoice::kOff || wire.host_copy_ranks != 1)
        refuse("zero_optimization",
               "ZeRO++ cannot be used, because no parameters are gathered between hosts");
    const char* const passing = "states are exchanged in place and cannot be offloaded";
    if (run.offload.optimizer != OffloadDevice::kNone)
        refuse("zero_optimization.offload_optimizer", passing);
    if (run.offload.parameters != OffloadDevice::kNone)
        refuse("zero_optimization.offload_param", passing);
}

}  // namespace dslaunch::config
