// `dslaunch plan --tensor N` and `--sequence N`: the shares of N ranks in each layer of the model,
// or in the positions of its samples, their collectives, and a check that the rewritten graph
// computes the same as the model.
#pragma once

#include <string>

#include "job/setup/job_tensor.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::worker {

// Parses PATTERN=RULE. Throws Error{kUsage} without `=`, Error{kConfig} for an unknown rule.
[[nodiscard]] std::pair<std::string, plan::TensorRule> parse_tensor_rule_option(
    const std::string& text);

// The plan by RULES for the model, from its graph and the shapes of one micro batch; no share is
// run. Throws what make_tensor_parallel does.
[[nodiscard]] plan::TensorPlan find_tensor_plan(const job::JobSetup& setup,
                                                const plan::TensorRules& rules);

// The plan and its check as a table or one JSON object. Throws what make_tensor_parallel and
// check_tensor_model do.
[[nodiscard]] std::string tensor_report(const job::JobSetup& setup,
                                        const job::TensorRequest& request, bool json);

}  // namespace dslaunch::worker
