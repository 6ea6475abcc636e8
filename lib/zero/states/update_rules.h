// The rules by which parameters are updated: each rule has an optimizer's settings, and groups of
// parameters may follow different rules. Data path: run config, model -> [here] -> ZeRO state.
// Value types.
#pragma once

#include <vector>

#include "config/run/optimizer_config.h"

namespace dslaunch::zero {

// The optimizer of some parameters, and the factor of their learning rate.
struct UpdateRule {
    config::OptimizerConfig optimizer;  // updates these parameters
    double lr_scale = 1;                // multiplies the job's learning rate

    bool operator==(const UpdateRule&) const = default;
};

// The rules of all parameters.
struct UpdateRules {
    std::vector<UpdateRule> rules;  // at least one
    std::vector<int> of_parameter;  // by model parameter; empty if all follow the first rule

    // Returns the index of PARAMETER's rule.
    [[nodiscard]] int index_of(int parameter) const {
        return of_parameter.empty() ? 0 : of_parameter[static_cast<size_t>(parameter)];
    }
};

}  // namespace dslaunch::zero
