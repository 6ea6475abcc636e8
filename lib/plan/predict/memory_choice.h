// The keys of a config that decide how much memory a job needs, and the nearest choice that fits a
// host. Data path: admission that failed -> what to change. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "plan/predict/admission.h"

namespace dslaunch::plan {

struct MemoryChoice {
    int64_t stage = 0;             // of ZeRO
    int64_t recompute_groups = 0;  // 0: activations are kept
    bool optimizer_on_disk = false;
    bool parameters_on_disk = false;
    int64_t micro_rows = 1;

    bool operator==(const MemoryChoice&) const = default;
};

// The need of a choice; nothing where it cannot be run.
using NeedOfChoice = std::function<std::optional<HostNeed>(const MemoryChoice&)>;

struct ChoiceSearch {
    MemoryChoice from;
    int64_t segments = 1;  // of the model: the most groups that can be recomputed
    HostLimits limits;
    NeedOfChoice need_of;
};

struct FittingChoice {
    MemoryChoice choice;
    HostNeed need;
};

// Returns the first that fits of: a higher stage, recompute, optimizer states on disk, parameters
// on disk, a smaller micro batch, each on top of those before it; then whatever of it is not needed
// is taken back. Nothing: none of them fits.
[[nodiscard]] std::optional<FittingChoice> nearest_fitting(const ChoiceSearch& search);

// Returns what changes, as keys of a config: "zero_optimization.stage: 3,
// activation_checkpointing.number_checkpoints: 4".
[[nodiscard]] std::string choice_text(const MemoryChoice& from, const MemoryChoice& to);

// Returns what to do about a job that VERDICTS refuse, a clause; looks for what fits.
[[nodiscard]] std::string admission_advice(const ChoiceSearch& search,
                                           std::span<const TierVerdict> verdicts);

}  // namespace dslaunch::plan
