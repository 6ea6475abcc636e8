// The rule by which each parameter of a model is updated, from the run config's optimizer, its
// groups of parameters, and the parameters' names and dimensions. Data path: run config, model ->
// [here] -> ZeRO state. Pure.
#pragma once

#include <string>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "zero/states/update_rules.h"

namespace dslaunch::job {

// Returns the update rules. Muon updates parameters of two and more dimensions without "embed" and
// "lm_head" in their names, as DeepSpeed chooses them, and not in modules "wte", "wpe" or "head",
// unless their group says otherwise; AdamW updates the rest. Throws Error{kConfig} for a pattern
// that fits no trained parameter, and for a group that gives Muon a vector.
[[nodiscard]] zero::UpdateRules parameter_rules(const config::RunConfig& config,
                                                const graph::Model& model);

// Says which rules RULES has for how many tensors and elements of MODEL; empty if there is one.
[[nodiscard]] std::string describe_rules(const zero::UpdateRules& rules, const graph::Model& model);

}  // namespace dslaunch::job
