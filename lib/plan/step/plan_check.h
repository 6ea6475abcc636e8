// The checker that every plan must pass before it runs, and the memory of a plan by tier. Pure.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns all faults of one rank's plan; an empty list if it is sound. The faults are:
// - A buffer is used before its creation or after its free, is freed twice, or is never freed.
// - Two lanes use a buffer without a wait between them. This is found by a happens-before analysis
//   that is independent of derive_waits.
// - A Reduce comes before the last Backward that adds to its bucket.
// - An instruction waits for a later instruction.
// - A gathered bucket is read before its Gather, after its Release, or in a different buffer.
[[nodiscard]] std::vector<std::string> check_plan(const StepPlan& plan);

// Returns the faults that appear only when the plans of a host's local ranks are taken together: a
// different order of collectives, a Post without its Reduce, and any deadlock of lanes and buckets
// (found by simulating the plans with every duration zero). In a pipeline with several STAGES,
// PLANS contains the plans of all local ranks for the first stage, then for the next stage, and so
// on. Send and Receive connect the ranks with the same index in their stages.
[[nodiscard]] std::vector<std::string> check_plans(std::span<const StepPlan> plans, int stages = 1);

// The peak bytes of a plan in each tier, in program order, and the instruction at which the peak is
// reached.
struct TierPeak {
    Bytes persistent;  // held all the time
    Bytes peak;        // persistent bytes included
    int instruction = -1;
};
// Returns the peaks, indexed by Tier.
[[nodiscard]] std::array<TierPeak, kTiers> peak_by_tier(const StepPlan& plan);

// Returns the largest number of bytes of each kind that a plan holds at once, over all tiers, in
// program order.
[[nodiscard]] std::array<Bytes, kBufferKinds> peak_by_kind(const StepPlan& plan);

}  // namespace dslaunch::plan
