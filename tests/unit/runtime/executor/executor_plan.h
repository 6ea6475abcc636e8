// Plans for the executor's tests: a step at stage 0 of a model whose segments have one parameter
// each.
#pragma once

#include <cstdint>
#include <string>

#include "plan/step/step_plan.h"
#include "support/catch.h"

namespace dslaunch::testing {

struct ExecutorPlan {
    int segments = 4;
    int64_t accumulation = 1;
    bool clip = true;
    int64_t bucket_numel_max = 1 << 20;
};

inline plan::StepPlan executor_plan(const ExecutorPlan& shape) {
    plan::ModelInfo model;
    for (int s = 0; s < shape.segments; ++s) {
        plan::SegmentInfo segment;
        segment.name = std::to_string(s);
        segment.parameters = {s};
        model.parameters.push_back({segment.name, 100, 4, true});
        model.segments.push_back(segment);
    }
    plan::StepPlanOptions options;
    options.accumulation_steps = shape.accumulation;
    options.clip = shape.clip;
    return plan::make_step_plan(model, plan::make_flat_layout(model, {shape.bucket_numel_max, 1}),
                                options);
}

// Returns the index of the first instruction that does OP.
inline int index_of(const plan::StepPlan& plan, plan::Op op) {
    for (size_t i = 0; i < plan.instructions.size(); ++i)
        if (plan.instructions[i].op == op) return static_cast<int>(i);
    FAIL("the plan has no " << plan::op_name(op));
    return -1;
}

}  // namespace dslaunch::testing
