// Resolves half precision: fp16 with its loss scale, bf16, autocast, Apex, and the types in which
// values are kept.
#include "config/resolve/resolve_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace dslaunch::config {

namespace {

// The largest exponent of a power of two in fp32, the type of the loss and its scale.
constexpr int64_t kScalePowerMax = 127;

const char* config_word(DType compute) {
    return compute == DType::kF16 ? "fp16" : compute == DType::kBF16 ? "bf16" : "fp32";
}

// The defaults of torch.amp.GradScaler, except for the minimum: GradScaler has none and continues
// to halve its scale. The minimum here is the smallest fp16 number; with a smaller scale, gradients
// up to 1 would become 0.
constexpr LossScaleConfig kGradScaler{.dynamic = true,
                                      .initial = 65536,
                                      .minimum = 1.0 / (1 << 24),
                                      .window = 2000,
                                      .hysteresis = 1,
                                      .grows_in_window = true};

constexpr const char* kApex = "amp.enabled";

// Reads the loss scale of Apex's LEVEL. A dynamic loss scale follows the rules of GradScaler.
void apex_loss_scale(KeyReader& keys, const std::string& level, LossScaleConfig& scale) {
    const std::string path = "amp.loss_scale", minimum = "amp.min_loss_scale";
    const Value* const given = keys.given(path);
    const bool is_number =
        given != nullptr && (given->is(Value::Kind::kInt) || given->is(Value::Kind::kFloat));
    const bool is_dynamic = given == nullptr
                                ? level != "O3"
                                : given->is(Value::Kind::kString) && given->text == "dynamic";
    if (given != nullptr) keys.record(path, *given, given->origin);
    if (is_dynamic) {
        scale = kGradScaler;
        if (keys.has(minimum)) scale.minimum = keys.take_number(minimum);
        if (scale.minimum > scale.initial)
            keys.problem(minimum, fmt::format("is above the first scale, {}", scale.initial));
        return;
    }
    if (given != nullptr &&
        (!is_number || !(given->as_double() > 0) ||
         given->as_double() > std::ldexp(1.0, static_cast<int>(kScalePowerMax))))
        return keys.problem(
            path,
            fmt::format("must be dynamic, or a number above 0 and at most 2^{}", kScalePowerMax));
    scale.initial = given == nullptr ? 1 : given->as_double();
    keys.unread(minimum, "the loss scale is fixed");
}

// Refuses keys of `amp` that would change the settings of an Apex level.
void refuse_apex_parameters(KeyReader& keys) {
    constexpr std::array kRead = {"enabled",        "opt_level",  "loss_scale", "min_loss_scale",
                                  "max_loss_scale", "num_losses", "verbosity"};
    for (const std::string& name : keys.given("amp")->keys)
        if (std::ranges::find(kRead, name) == kRead.end())
            keys.problem("amp." + name,
                         "changes a part of an Apex level, but dslaunch, which does not use Apex, "
                         "supports only whole levels: remove the key");
}

// Reads `amp`. The level of Apex determines the type in which the run computes.
void apex(KeyReader& keys, RunConfig& run) {
    PrecisionConfig& precision = run.precision;
    refuse_apex_parameters(keys);
    const std::string level = keys.take_text("amp.opt_level");
    if (level == "O0") {
        keys.unread("amp.loss_scale", "level O0 computes in fp32");
        keys.unread("amp.min_loss_scale", "level O0 computes in fp32");
        return keys.note(kApex, "is fp32 here: Apex's level O0");
    }
    precision.compute = DType::kF16;
    precision.fp32_weights = level == "O1";
    precision.skip_nonfinite_steps = true;
    apex_loss_scale(keys, level, precision.loss_scale);
    keys.note(kApex, fmt::format("{}, with {} loss scale: Apex's level {}",
                                 level == "O1" ? "is torch_autocast in float16 here"
                                               : "is fp16 with fp32 master weights here",
                                 precision.loss_scale.dynamic
                                     ? "a dynamic"
                                     : fmt::format("{} as the", precision.loss_scale.initial),
                                 level));
}

// Returns true if `amp` is on. The Trainer of Hugging Face turns `auto` on only for runs that ask
// for Apex by name.
bool takes_apex(KeyReader& keys) {
    if (!keys.is_auto(kApex)) return keys.take_bool(kApex);
    keys.derive(kApex, make_value(false),
                "auto = off, as in Hugging Face's Trainer for a run that does not ask for Apex");
    return false;
}

void torch_autocast(KeyReader& keys, RunConfig& run) {
    PrecisionConfig& precision = run.precision;
    const std::string dtype = keys.take_text("torch_autocast.dtype");
    precision.compute = dtype == "float16" || dtype == "fp16" ? DType::kF16 : DType::kBF16;
    precision.fp32_weights = true;
    precision.skip_nonfinite_steps = precision.compute == DType::kF16;
    if (precision.compute == DType::kF16) precision.loss_scale = kGradScaler;
}

void without_masters(KeyReader& keys, RunConfig& run) {
    const std::string moments = "bf16.bf16_optimizer_states";
    if (keys.take_bool(moments)) {
        if (run.states == MomentFormat::kInt8)
            keys.problem(moments,
                         "asks for moments in bf16, but dslaunch.optimizer.states for int8: remove "
                         "one of the two");
        if (run.optimizer.needs_whole_tensors())
            keys.problem(moments, "is not supported for optimizers that update whole tensors");
        run.states = MomentFormat::kBf16;
    }
    const std::string path = "bf16.bf16_master_weights_and_grads";
    run.precision.master_copies = !keys.take_bool(path);
    if (run.precision.master_copies) return;
    const OptimizerConfig& optimizer = run.optimizer;
    if (optimizer.needs_whole_tensors())
        keys.problem(path, fmt::format("is not supported for {}, which updates whole tensors",
                                       keys.optimizer_name()));
    if (optimizer.decays_gradient())
        keys.problem(path,
                     "cannot be used with weight decay that is added to gradients: use AdamW, "
                     "Lion, or a weight_decay of 0");
}

// Returns true if the run trains in bf16 because the model's weights are bf16 and the config names
// no type. Does not choose fp16 for fp16 weights, because training in fp16 needs a loss scale and
// skips steps. The user must choose fp16.
bool takes_weights_type(KeyReader& keys) {
    const std::string path = "bf16.enabled";
    const bool named = keys.has_or_auto(path) || keys.is_auto("fp16.enabled") ||
                       keys.is_true("fp16.enabled") || keys.is_true("torch_autocast.enabled") ||
                       keys.is_true(kApex) || keys.has("data_types.param_dtype");
    if (named) return false;
    if (keys.options().model_dtype == DType::kF16)
        keys.add_note(
            "the model's weights are float16, and no type is set, so they are trained in fp32; "
            "fp16.enabled true (--fp16) trains in fp16, with a loss scale");
    if (keys.options().model_dtype != DType::kBF16) return false;
    keys.derive(path, make_value(true), "the model's weights are bfloat16, and no type is set");
    keys.add_note(
        "the model's weights are bfloat16, and no type is set, so they are trained in bf16, with "
        "fp32 master copies; bf16.enabled false trains in fp32");
    return true;
}

// Returns the value of the switch at PATH. `auto` means true if the model's weights have DTYPE and
// the switch at OTHER is not on.
bool take_half(KeyReader& keys, const std::string& path, DType dtype, const std::string& other) {
    if (!keys.is_auto(path)) return keys.take_bool(path);
    const Value* const other_given = keys.given(other);
    const bool on =
        keys.options().model_dtype == dtype && (other_given == nullptr || !other_given->boolean);
    keys.derive(path, make_value(on),
                keys.options().model_dtype
                    ? "auto = the type of the model's own weights"
                    : "auto = fp32 unless the model's own weights are 16 bits wide");
    keys.note_auto(path, make_value(on));
    return on;
}

void dynamic_loss_scale(KeyReader& keys, RunConfig& run) {
    LossScaleConfig& scale = run.precision.loss_scale;
    const int64_t power = keys.take_integer("fp16.initial_scale_power");
    scale.initial = std::ldexp(1.0, static_cast<int>(std::min(power, kScalePowerMax)));
    if (power > kScalePowerMax) {
        keys.problem("fp16.initial_scale_power",
                     fmt::format("must be at most {0}: 2^{0} is the largest scale of an fp32 loss",
                                 kScalePowerMax));
    }
    scale.window = keys.take_integer("fp16.loss_scale_window");
    scale.hysteresis = keys.take_integer("fp16.hysteresis");
    scale.consecutive_hysteresis = keys.take_bool("fp16.consecutive_hysteresis");
    scale.minimum = static_cast<double>(keys.take_integer("fp16.min_loss_scale"));
    if (scale.window == 0)
        keys.problem("fp16.loss_scale_window", "must be above 0 with a dynamic loss scale");
    if (scale.hysteresis == 0)
        keys.problem("fp16.hysteresis",
                     "must be above 0: with 0 the loss scale would never be lowered");
    if (scale.minimum == 0) {
        keys.problem("fp16.min_loss_scale", "must be above 0 with a dynamic loss scale");
    } else if (scale.initial < scale.minimum) {
        keys.problem("fp16.min_loss_scale",
                     fmt::format("{} is above the first scale, 2^fp16.initial_scale_power = {}",
                                 scale.minimum, scale.initial));
    }
}

void loss_scale(KeyReader& keys, RunConfig& run) {
    LossScaleConfig& scale = run.precision.loss_scale;
    const double fixed = keys.take_number("fp16.loss_scale");
    scale.dynamic = fixed == 0;
    if (scale.dynamic) return dynamic_loss_scale(keys, run);
    scale.initial = fixed;
    if (fixed > std::ldexp(1.0, kScalePowerMax)) {
        keys.problem(
            "fp16.loss_scale",
            fmt::format("is above 2^{}, the largest scale of an fp32 loss", kScalePowerMax));
    }
    for (const char* path :
         {"fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.hysteresis",
          "fp16.consecutive_hysteresis", "fp16.min_loss_scale"}) {
        keys.unread(path, "fp16.loss_scale fixes the scale");
    }
}

// Reads the type of gradient sums, which are always fp32. A 16-bit type, which would save memory,
// has no effect.
void sum_type(KeyReader& keys) {
    const std::string path = "data_types.grad_accum_dtype";
    const Value* value = keys.given(path);
    if (value != nullptr && value->text == "fp32") return keys.record(path, *value, value->origin);
    if (value != nullptr)
        keys.note(path,
                  "has no effect: gradients are summed in fp32, which is more exact and takes more "
                  "memory");
    keys.derive(path, make_value(std::string("fp32")), "gradients are summed and kept in fp32");
}

void kept_types(KeyReader& keys, RunConfig& run) {
    sum_type(keys);
    const char* compute = config_word(run.precision.weights());
    const std::string param_dtype = "data_types.param_dtype";
    const Value* value = keys.given(param_dtype);
    if (value == nullptr)
        return keys.derive(
            param_dtype, make_value(std::string(compute)),
            "the type that fp16.enabled and bf16.enabled choose; master weights are fp32");
    if (value->text != compute) {
        keys.problem(
            param_dtype,
            fmt::format(
                "{} contradicts fp16.enabled and bf16.enabled, which choose {}: remove the key",
                value->text, compute));
    }
    keys.record(param_dtype, *value, value->origin);
}

// Returns the problem of a config that has both types. If an option asks for one type, names the
// place of the other.
std::string both_text(KeyReader& keys) {
    const Value *const fp16 = keys.given("fp16.enabled"), *const bf16 = keys.given("bf16.enabled");
    const auto is_option = [](const Value* value) {
        return value != nullptr && value->origin.starts_with("--");
    };
    if (fp16 == nullptr || bf16 == nullptr || is_option(fp16) == is_option(bf16))
        return "fp16.enabled is also true: enable only one of the two";
    const bool wants_bf16 = is_option(bf16);
    return fmt::format("fp16.enabled is also true ({}): for {}, add --set {}.enabled=false",
                       wants_bf16 ? fp16->origin : bf16->origin, wants_bf16 ? "bf16" : "fp16",
                       wants_bf16 ? "fp16" : "bf16");
}

}  // namespace

void resolve_precision(KeyReader& keys, RunConfig& run) {
    PrecisionConfig& precision = run.precision;
    const bool fp16 = take_half(keys, "fp16.enabled", DType::kF16, "bf16.enabled");
    const bool bf16 =
        takes_weights_type(keys) || take_half(keys, "bf16.enabled", DType::kBF16, "fp16.enabled");
    if (fp16 && bf16) keys.problem("bf16.enabled", both_text(keys));
    const std::string autocast = "torch_autocast.enabled";
    const bool uses_apex = takes_apex(keys);
    if (uses_apex && (fp16 || bf16 || keys.is_true(autocast)))
        keys.problem(kApex, fmt::format("{} is also true: enable only one of the two",
                                        fp16   ? "fp16.enabled"
                                        : bf16 ? "bf16.enabled"
                                               : autocast));
    if (keys.take_bool(autocast)) {
        if (fp16 || bf16)
            keys.problem(autocast,
                         fmt::format("{} is also true, but uses 16-bit weights, and torch_autocast "
                                     "needs fp32 weights: enable only one of the two",
                                     fp16 ? "fp16.enabled" : "bf16.enabled"));
        torch_autocast(keys, run);
    } else if (uses_apex) {
        apex(keys, run);
    } else if (fp16) {
        precision.compute = DType::kF16;
        precision.skip_nonfinite_steps = true;
        loss_scale(keys, run);
    } else if (bf16) {
        precision.compute = DType::kBF16;
        precision.skip_nonfinite_steps = keys.take_bool("bf16.check_grad_overflow");
        without_masters(keys, run);
    }
    kept_types(keys, run);
}

}  // namespace dslaunch::config
