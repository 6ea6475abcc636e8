// `dslaunch plan --tensor N` and `--sequence N`: how N ranks would share each layer of the model,
// or the positions of its samples, what they would say to each other, and whether the rewritten
// graph computes what the model does.
#pragma once

#include <string>

#include "job/setup/job_tensor.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::worker {

// PATTERN=RULE. Throws Error{kUsage} without `=`, Error{kConfig} for another word.
[[nodiscard]] std::pair<std::string, plan::TensorRule> parse_tensor_rule_option(
    const std::string& text);

// What RULES make of the model, by its graph and the shapes of one micro batch; nothing is run in
// parts. Throws what make_tensor_parallel does.
[[nodiscard]] plan::TensorPlan find_tensor_plan(const job::JobSetup& setup,
                                                const plan::TensorRules& rules);

// As a table or one JSON object. Throws what make_tensor_parallel and check_tensor_model do.
[[nodiscard]] std::string tensor_report(const job::JobSetup& setup,
                                        const job::TensorRequest& request, bool json);

}  // namespace dslaunch::worker
