// The rule by which each parameter is updated: an optimizer's numbers, which groups of parameters
// may change. Data path: run config, model -> [here] -> ZeRO state. Value types.
#pragma once

#include <vector>

#include "config/run/optimizer_config.h"

namespace dslaunch::zero {

struct UpdateRule {
    config::OptimizerConfig optimizer;  // with the kind that updates these parameters
    double lr_scale = 1;                // its rate as a multiple of the job's

    bool operator==(const UpdateRule&) const = default;
};

struct UpdateRules {
    std::vector<UpdateRule> rules;  // at least one
    std::vector<int> of_parameter;  // by the model's parameters; empty: all follow the first rule

    [[nodiscard]] int index_of(int parameter) const {
        return of_parameter.empty() ? 0 : of_parameter[static_cast<size_t>(parameter)];
    }
};

}  // namespace dslaunch::zero
