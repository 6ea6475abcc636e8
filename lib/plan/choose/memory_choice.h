// Finds the memory settings that let a job fit on its hosts and are nearest to its config. Data
// path: failed admission -> [here] -> advice. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "plan/choose/choice.h"
#include "plan/predict/admission.h"

namespace dslaunch::plan {

// The settings that decide how much memory a job needs.
struct MemoryChoice {
    int64_t stage = 0;             // ZeRO stage
    int64_t recompute_groups = 0;  // 0: activations are kept
    bool optimizer_on_disk = false;
    bool parameters_on_disk = false;
    int64_t micro_rows = 1;
    int64_t hosts = 1;  // number of hosts like the given ones

    bool operator==(const MemoryChoice&) const = default;
};

// Returns what a host needs with a choice; nullopt if the choice cannot be run.
using NeedOfChoice = std::function<std::optional<HostNeed>(const MemoryChoice&)>;

// A search for settings: the settings that it starts from, and the limits of a host.
struct ChoiceSearch {
    MemoryChoice from;
    int64_t segments = 1;  // number of the model's segments: the largest number of groups
    HostLimits limits;
    NeedOfChoice need_of;
};

// A choice that fits. Its cost is the memory and disk that a host needs with this choice. WHY lists
// the changes as keys of a config: "zero_optimization.stage: 3,
// activation_checkpointing.number_checkpoints: 4".
using FittingChoice = Choice<MemoryChoice, HostNeed>;

// Returns the first choice that fits. Makes these changes in order, each in addition to the earlier
// ones: a higher stage, recomputation, optimizer states on disk, parameters on disk, a smaller
// micro batch, more hosts. Then undoes the changes that turn out not to be needed. Returns nullopt
// if no choice fits.
[[nodiscard]] std::optional<FittingChoice> nearest_fitting(const ChoiceSearch& search);

// The search tries at most this multiple of the given numbers of rows and hosts.
inline constexpr int64_t kMostTimes = 64;

// Returns the largest number of rows of a micro batch for which SEARCH.from still fits. It is never
// smaller than the number in SEARCH.from. REQUIRES: SEARCH.from fits.
[[nodiscard]] int64_t most_rows(const ChoiceSearch& search);

// Returns advice for a job that does not fit according to VERDICTS, as a clause for an error
// message. If memory is short, searches for a choice that fits.
[[nodiscard]] std::string admission_advice(const ChoiceSearch& search,
                                           std::span<const TierVerdict> verdicts);

}  // namespace dslaunch::plan
