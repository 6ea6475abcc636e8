// The buffers that a rank holds before and after a step: parameters, gradients, states and the
// buffers through which they pass. Data path: layout, chosen buffers and chunks -> [here] -> step
// plan builder. Pure.
#pragma once

#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Indices into StepPlan::buffers.
struct PersistentBuffers {
    std::vector<int> parameters;        // by bucket
    std::vector<int> places;            // by bucket, the place that its tensors point to; -1: not
                                        // gathered
    std::vector<int> gradients;         // by trained bucket, below stage 2
    std::vector<int> gradient_buffers;  // from stage 2 on
    std::vector<int> moments;           // by trained bucket, the part in memory
    std::vector<int> reduced;           // by trained bucket, if reduced gradients are kept
    std::vector<int> staging;           // by gather buffer
    std::vector<int> errors;            // by trained bucket, of compression; none without it
    std::vector<int> waiting;           // by trained bucket, gradients that lag; none without them
    int choice = -1;                    // of important units
    int exchange = -1;                  // values that hosts exchange compressed
    int norm = -1;
};

// Adds the buffers to PLAN, whose chunks and buffers are chosen.
[[nodiscard]] PersistentBuffers add_persistent_buffers(const ModelInfo& model,
                                                       const FlatLayout& layout,
                                                       const StepPlanOptions& options,
                                                       StepPlan& plan);

}  // namespace dslaunch::plan
