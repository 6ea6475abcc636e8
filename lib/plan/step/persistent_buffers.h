// What a rank holds before and after a step, as buffers of its plan: parameters, gradients, states
// and the slots through which they pass. Where it stands: layout, chosen slots and chunks ->
// [here] -> step plan builder. Pure.
#pragma once

#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Indices into StepPlan::buffers.
struct PersistentBuffers {
    std::vector<int> parameters;      // of each bucket
    std::vector<int> places;          // of each bucket: where its tensors point; -1: not gathered
    std::vector<int> gradients;       // of each trained bucket, below stage 2
    std::vector<int> gradient_slots;  // from stage 2 on
    std::vector<int> moments;         // of each trained bucket, the part in memory
    std::vector<int> reduced;         // likewise, where reduced gradients are kept
    std::vector<int> staging;         // of each slot for gathered parameters
    int norm = -1;
};

// Adds them to PLAN, whose chunks and slots are chosen.
[[nodiscard]] PersistentBuffers add_persistent_buffers(const ModelInfo& model,
                                                       const FlatLayout& layout,
                                                       const StepPlanOptions& options,
                                                       StepPlan& plan);

}  // namespace dslaunch::plan
