// The rule by which each parameter of a model is updated, from the run config's optimizer and
// parameter groups, and from the parameters' names and dimensions. Data path: run config, model ->
// [here] -> ZeRO state. Pure.
#pragma once

#include <string>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "zero/states/update_rules.h"

namespace dslaunch::job {

// Returns the update rules. Muon updates parameters with two or more dimensions, unless their group
// says otherwise; AdamW updates the rest. As in DeepSpeed, Muon does not update parameters with
// "embed" or "lm_head" in their names; nor does it update parameters in modules "wte", "wpe" or
// "head". Throws Error{kConfig} for a pattern that matches no trained parameter, and for a group
// that assigns a vector to Muon.
[[nodiscard]] zero::UpdateRules parameter_rules(const config::RunConfig& config,
                                                const graph::Model& model);

// Returns a text that says, for each of RULES, how many tensors and elements of MODEL it applies
// to. Empty if there is only one rule.
[[nodiscard]] std::string describe_rules(const zero::UpdateRules& rules, const graph::Model& model);

}  // namespace dslaunch::job
