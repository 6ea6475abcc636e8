// The keys of a config that decide the memory of a job, and the nearest choice that fits a host.
// Data path: failed admission -> [here] -> advice. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "plan/choose/choice.h"
#include "plan/predict/admission.h"

namespace dslaunch::plan {

struct MemoryChoice {
    int64_t stage = 0;             // ZeRO stage
    int64_t recompute_groups = 0;  // 0: activations are kept
    bool optimizer_on_disk = false;
    bool parameters_on_disk = false;
    int64_t micro_rows = 1;
    int64_t hosts = 1;  // hosts like those that there are

    bool operator==(const MemoryChoice&) const = default;
};

// Returns the need of a choice; nullopt if it cannot be run.
using NeedOfChoice = std::function<std::optional<HostNeed>(const MemoryChoice&)>;

struct ChoiceSearch {
    MemoryChoice from;
    int64_t segments = 1;  // segments of the model: the most groups that can be recomputed
    HostLimits limits;
    NeedOfChoice need_of;
};

// Its cost is the need of a host; WHY names the changes as keys of a config:
// "zero_optimization.stage: 3, activation_checkpointing.number_checkpoints: 4".
using FittingChoice = Choice<MemoryChoice, HostNeed>;

// Returns the first choice that fits of: a higher stage, recompute, optimizer states on disk,
// parameters on disk, a smaller micro batch, more hosts, each added to the earlier ones. Then
// undoes changes that are not needed. Returns nullopt if no choice fits.
[[nodiscard]] std::optional<FittingChoice> nearest_fitting(const ChoiceSearch& search);

// The search looks at most at this many times the rows or hosts that there are.
inline constexpr int64_t kMostTimes = 64;

// Returns the most rows in a micro batch with which SEARCH.from fits: its own, or more. REQUIRES:
// SEARCH.from fits.
[[nodiscard]] int64_t most_rows(const ChoiceSearch& search);

// Returns advice for a job that VERDICTS refuse, a clause; it searches for a choice that fits.
[[nodiscard]] std::string admission_advice(const ChoiceSearch& search,
                                           std::span<const TierVerdict> verdicts);

}  // namespace dslaunch::plan
