// The optimizers and their facts, one row each. Constants; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dslaunch::config {

// The optimizers. kAdam adds L2 decay to the gradient, kAdamW decays parameters.
enum class OptimizerKind {
    kAdam,
    kAdamW,
    kSgd,
    kAdagrad,
    kLion,
    kLamb,
    kMuon,
    kAdafactor,
    kOneBitAdam,
    kZeroOneAdam,
    kOneBitLamb
};

// The facts of an optimizer that do not depend on its settings.
struct OptimizerFacts {
    OptimizerKind kind;
    std::string_view type;  // optimizer.type in a config
    std::string_view name;  // in checkpoints and messages: `type` in small letters
    // torch.optim's names for the two values that the optimizer keeps for each parameter; "" if it
    // keeps only one or no value. SGD keeps a value only if it has momentum, and Adafactor keeps
    // the first value only if it has a first moment.
    std::array<std::string_view, 2> moments;
    // True if the first value is a mean or a sum of squares. The second value always is a mean or a
    // sum of squares.
    bool first_is_square = false;
    bool has_betas = true;         // it has the decay rates that OneCycle can move
    bool has_usual_rate = false;   // the usual rates of fine-tuning are meant for it
    bool decays_gradient = false;  // weight decay is added to the gradient, not to parameters
    // The update of an element depends on all other elements of its tensor.
    bool needs_whole_tensors = false;
    bool compresses = false;   // hosts exchange a compressed form of gradients
    bool runs_on_gpus = true;  // its update has kernels for GPUs, unless it compresses
};

inline constexpr std::array<std::string_view, 2> kAdamMoments = {"exp_avg", "exp_avg_sq"};

// One row for each optimizer, in the order of OptimizerKind.
inline constexpr std::array<OptimizerFacts, 11> kOptimizerFacts = {{
    {.kind = OptimizerKind::kAdam,
     .type = "Adam",
     .name = "adam",
     .moments = kAdamMoments,
     .has_usual_rate = true,
     .decays_gradient = true},
    {.kind = OptimizerKind::kAdamW,
     .type = "AdamW",
     .name = "adamw",
     .moments = kAdamMoments,
     .has_usual_rate = true},
    {.kind = OptimizerKind::kSgd,
     .type = "SGD",
     .name = "sgd",
     .moments = {"momentum_buffer"},
     .has_betas = false,
     .decays_gradient = true},
    {.kind = OptimizerKind::kAdagrad,
     .type = "Adagrad",
     .name = "adagrad",
     .moments = {"sum"},
     .first_is_square = true,
     .has_betas = false,
     .decays_gradient = true},
    {.kind = OptimizerKind::kLion,
     .type = "Lion",
     .name = "lion",
     .moments = {"exp_avg"},
     .has_usual_rate = true},
    {.kind = OptimizerKind::kLamb,
     .type = "Lamb",
     .name = "lamb",
     .moments = kAdamMoments,
     .needs_whole_tensors = true},
    {.kind = OptimizerKind::kMuon,
     .type = "Muon",
     .name = "muon",
     .moments = kAdamMoments,
     .needs_whole_tensors = true,
     .runs_on_gpus = false},
    {.kind = OptimizerKind::kAdafactor,
     .type = "Adafactor",
     .name = "adafactor",
     .moments = {"exp_avg"},
     .needs_whole_tensors = true,
     .runs_on_gpus = false},
    {.kind = OptimizerKind::kOneBitAdam,
     .type = "OneBitAdam",
     .name = "onebitadam",
     .moments = kAdamMoments,
     .has_usual_rate = true,
     .compresses = true},
    {.kind = OptimizerKind::kZeroOneAdam,
     .type = "ZeroOneAdam",
     .name = "zerooneadam",
     .moments = kAdamMoments,
     .has_usual_rate = true,
     .compresses = true},
    {.kind = OptimizerKind::kOneBitLamb,
     .type = "OneBitLamb",
     .name = "onebitlamb",
     .moments = kAdamMoments,
     .needs_whole_tensors = true,
     .compresses = true},
}};

static_assert([] {
    for (size_t i = 0; i < kOptimizerFacts.size(); ++i)
        if (kOptimizerFacts[i].kind != static_cast<OptimizerKind>(i)) return false;
    return true;
}());

// Returns the row of KIND.
[[nodiscard]] constexpr const OptimizerFacts& facts_of(OptimizerKind kind) {
    return kOptimizerFacts[static_cast<size_t>(kind)];
}

}  // namespace dslaunch::config
