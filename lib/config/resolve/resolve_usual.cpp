// The usual values for tuning a pretrained model, and the line that reports the chosen values. A
// usual value is used if the user gives no value. docs/guide/models.md lists the sources.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {

namespace {

constexpr const char* kRate = "optimizer.params.lr";

// The learning rates of TRL's SFT scripts and of its DPOConfig; adapters use ten times the rate.
constexpr double kFullRate = 2e-5, kAdapterRate = 2e-4;
constexpr double kFullRateOfPairs = 1e-6, kAdapterRateOfPairs = 1e-5;
// A learning rate above the usual one times this factor is probably a mistake.
constexpr double kFarAbove = 10;
// A rate of this size or more is a mistake for any model.
constexpr double kLeastOdd = 1;
// The defaults of transformers' TrainingArguments on one device.
constexpr double kClippingNorm = 1;
constexpr int64_t kRows = 8;
// The number of tokens in a micro batch that keeps a processor busy; more tokens only need more
// memory for activations.
constexpr int64_t kMicroTokens = 1024;
constexpr int64_t kMicroStepsOfStage = 4;

struct HighestRate {
    double value = 0;              // 0 if it is not known before the run
    const char* option = "--lr ";  // the option that changes it
};

HighestRate highest_rate(const RunConfig& config) {
    const SchedulerConfig& scheduler = config.scheduler;
    HighestRate rate{config.optimizer.lr};
    switch (scheduler.kind) {
        case SchedulerKind::kWarmupLr:
        case SchedulerKind::kWarmupDecayLr:
            if (scheduler.warmup_max_lr != rate.value)
                rate = {scheduler.warmup_max_lr, "--set scheduler.params.warmup_max_lr="};
            break;
        case SchedulerKind::kOneCycle:
            rate = {scheduler.cycle.max_lr, "--set scheduler.params.cycle_max_lr="};
            break;
        case SchedulerKind::kLrRangeTest:
        case SchedulerKind::kRelativeStep:
            return {0};
        default:
            break;
    }
    if (config.optimizer.lr == 0) return rate;
    const double factor = rate.value / config.optimizer.lr;
    for (const ParameterGroup& group : config.parameter_groups)
        if (group.lr && *group.lr * factor > rate.value)
            rate = {*group.lr * factor, "an `lr` in dslaunch.optimizer.groups of "};
    return rate;
}

// Returns the name of the loss in ROOT if it is a loss on pairs of answers, else "".
std::string pairs_loss(const Value& root) {
    const Value* const loss = find_path(root, "dslaunch.loss.name");
    if (loss == nullptr) return "";
    constexpr std::array kLosses = {"dpo", "ipo", "simpo", "orpo"};
    return std::ranges::find(kLosses, loss->text) == kLosses.end() ? "" : loss->text;
}

// Returns the usual learning rate. REQUIRES: resolve_lora() has run.
double usual_rate(KeyReader& keys, RunConfig& run) {
    const bool adapters = run.lora.on();
    if (pairs_loss(keys.root()).empty()) return adapters ? kAdapterRate : kFullRate;
    return adapters ? kAdapterRateOfPairs : kFullRateOfPairs;
}

// Returns words that say for which kind of training the rate is usual: "for adapters of a
// pretrained model with the loss dpo".
std::string usual_text(KeyReader& keys, RunConfig& run) {
    const std::string loss = pairs_loss(keys.root());
    return fmt::format("for {} of a pretrained model{}", run.lora.on() ? "adapters" : "all weights",
                       loss.empty() ? "" : " with the loss " + loss);
}

}  // namespace

bool takes_usual_batch(KeyReader& keys) {
    return keys.options().is_pretrained &&
           std::ranges::none_of(std::array{kTotal, kMicro, kMicroSteps},
                                [&](const char* path) { return keys.has_or_auto(path); });
}

// Chooses the number of rows of a step. It hardly depends on the number of ranks, so a run may be
// continued with another number of ranks. The micro batch depends on the length of the samples, the
// rank's rows and the stages, but not on the machine.
void usual_batch(KeyReader& keys, RunConfig& run, int64_t ranks) {
    const int64_t wanted = std::clamp<int64_t>(keys.options().samples.value_or(kRows), 1, kRows);
    const int64_t of_rank = (wanted + ranks - 1) / ranks;
    const Value* const context = keys.given("dslaunch.data.context");
    const int64_t tokens = keys.options().sample_tokens ? *keys.options().sample_tokens
                           : context != nullptr         ? as_integer(*context)
                                                        : keys.options().context;
    int64_t micro = 1;
    // Stages of a pipeline work at the same time only if there are several micro batches.
    const int64_t stages = run.pipeline.stages;
    const int64_t rows_max = stages == 1 ? of_rank : of_rank / stages / kMicroStepsOfStage;
    for (int64_t rows = 2; tokens > 0 && rows <= rows_max; ++rows)
        if (of_rank % rows == 0 && tokens <= kMicroTokens / rows) micro = rows;
    run.batch = {of_rank * ranks, micro, of_rank / micro, ranks};
    keys.derive(
        kTotal, make_value(of_rank * ranks),
        fmt::format("usual for a pretrained model: {} rows with any number of ranks", wanted),
        true);
    keys.derive(kMicro, make_value(micro),
                fmt::format("usual: as many rows as fit in {} tokens", kMicroTokens), true);
    keys.derive(kMicroSteps, make_value(of_rank / micro),
                fmt::format("usual: {} rows / {} ranks / {} rows per micro step", of_rank * ranks,
                            ranks, micro),
                true);
    keys.choose(fmt::format("{} per step (--micro-batch, --accumulation)",
                            counted(of_rank * ranks, "row")));
}

double take_rate(KeyReader& keys, RunConfig& run) {
    if (!keys.options().is_pretrained || keys.has_or_auto(kRate)) return keys.take_number(kRate);
    const double rate = usual_rate(keys, run);
    keys.derive(kRate, make_value(rate), "usual " + usual_text(keys, run));
    // If the schedule has its own rates, the usual rate is not used.
    if (!keys.has("scheduler.params.warmup_max_lr") && !keys.has("scheduler.params.cycle_max_lr"))
        keys.choose(fmt::format("lr {:.3g}, usual {} (--lr)", rate, usual_text(keys, run)));
    return rate;
}

void usual_clipping(KeyReader& keys, RunConfig& run) {
    run.gradient_clipping = kClippingNorm;
    keys.derive("gradient_clipping", make_value(kClippingNorm),
                "usual for a pretrained model, and the default of Hugging Face's Trainer");
    keys.choose(
        fmt::format("gradients clipped at norm {:.3g} (--set gradient_clipping=N)", kClippingNorm));
}

// REQUIRES: all keys that change the learning rate have been resolved.
void check_rate(KeyReader& keys, RunConfig& run) {
    const HighestRate rate = highest_rate(run);
    const double usual = usual_rate(keys, run);
    if (!keys.options().is_pretrained && facts_of(run.optimizer.kind).has_usual_rate &&
        rate.value >= kLeastOdd)
        keys.add_warning(
            fmt::format("a learning rate of {:.3g} is far above the usual ones, 1e-5 to 1e-2: is a "
                        "minus sign missing, as in 2e-4? ({}X)",
                        rate.value, rate.option));
    if (!keys.options().is_pretrained || !facts_of(run.optimizer.kind).has_usual_rate ||
        rate.value <= kFarAbove * usual * (1 + 1e-9))
        return;
    keys.add_warning(
        fmt::format("a learning rate of {:.3g} is {:.3g} times the usual rate {}: a few steps may "
                    "destroy what the model has learned; the usual rate is {}{:.3g}",
                    rate.value, rate.value / usual, usual_text(keys, run), rate.option, usual));
}

}  // namespace dslaunch::config
