// The buffers that a rank keeps from one step to the next: parameters, gradients, states, and the
// buffers through which they pass. Data path: layout, chosen buffers and chunks -> [here] -> step
// plan builder. Pure.
#pragma once

#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Indices into StepPlan::buffers.
struct PersistentBuffers {
    std::vector<int> parameters;        // by bucket
    std::vector<int> places;            // by bucket, stands for the memory that its tensors point
                                        // to; -1: not gathered
    std::vector<int> gradients;         // by trained bucket, below stage 2
    std::vector<int> gradient_buffers;  // from stage 2 on, shared by buckets
    std::vector<int> moments;           // by trained bucket, the part in memory
    std::vector<int> reduced;           // by trained bucket, if reduced gradients are kept
    std::vector<int> staging;           // by gather buffer, the gathered parameters
    std::vector<int> errors;            // by trained bucket, errors of compression; empty if
                                        // nothing is compressed
    std::vector<int> waiting;           // by trained bucket, waiting gradients; empty without lag
    int choice = -1;                    // the choice of important units
    int exchange = -1;                  // values that hosts exchange in compressed form
    int norm = -1;
};

// Adds the buffers to PLAN, whose chunks and shared buffers must have been chosen.
[[nodiscard]] PersistentBuffers add_persistent_buffers(const ModelInfo& model,
                                                       const FlatLayout& layout,
                                                       const StepPlanOptions& options,
                                                       StepPlan& plan);

}  // namespace dslaunch::plan
