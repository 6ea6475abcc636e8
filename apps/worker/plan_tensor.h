// `dslaunch plan --tensor N` and `--sequence N`: how N ranks would share each layer of the model,
// or the positions of its samples, what they would say to each other, and whether the rewritten
// graph computes what the model does.
#pragma once

#include <string>

#include "plan/tensor_plan.h"
#include "worker/job_tensor.h"

namespace dslaunch {

// PATTERN=RULE. Throws Error{kUsage} without `=`, Error{kConfig} for another word.
[[nodiscard]] std::pair<std::string, TensorRule> parse_tensor_rule_option(const std::string& text);

// What RULES make of the model, by its graph and the shapes of one micro batch; nothing is run in
// parts. Throws what make_tensor_parallel does.
[[nodiscard]] TensorPlan find_tensor_plan(const JobSetup& setup, const TensorRules& rules);

// As a table or one JSON object. Throws what make_tensor_parallel and check_tensor_model do.
[[nodiscard]] std::string tensor_report(const JobSetup& setup, const TensorRequest& request,
                                        bool json);

}  // namespace dslaunch
