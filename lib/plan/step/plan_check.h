// The checker that every plan passes before it runs, and its memory by tier. Pure.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns all faults of one rank's plan, no fault if it is sound: uses before creation or after
// free, double frees, buffers that are never freed, two lanes touching a buffer without a wait
// between them (a happens-before analysis, independent of derive_waits), a Reduce before the last
// Backward that adds to its bucket, waits on later instructions, and reads of a gathered bucket
// that are not between its Gather and its Release, or in another buffer.
[[nodiscard]] std::vector<std::string> check_plan(const StepPlan& plan);

// Returns the faults between the plans of a host's local ranks, taken together: different order of
// collectives, a Post without its Reduce, and any deadlock of lanes and buckets (found by running
// the plans with every duration zero). A pipeline has STAGES times as many plans, stage by stage;
// Send and Receive join the ranks at the same place in their stages.
[[nodiscard]] std::vector<std::string> check_plans(std::span<const StepPlan> plans, int stages = 1);

// The peak bytes of a plan by tier, in program order, and the instruction at which they are
// reached.
struct TierPeak {
    Bytes persistent;  // held all the time
    Bytes peak;        // persistent included
    int instruction = -1;
};
[[nodiscard]] std::array<TierPeak, kTiers> peak_by_tier(const StepPlan& plan);

// Returns the most bytes of each kind that a plan holds at once, over all tiers, in program order.
[[nodiscard]] std::array<Bytes, kBufferKinds> peak_by_kind(const StepPlan& plan);

}  // namespace dslaunch::plan
