// The table of rules by which operators place their outputs. Each source of rules adds the rules of
// its operators; placement_flow.cpp looks them up. No shared state.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <initializer_list>
#include <unordered_map>

#include "graph/tensor/flow_state.h"

namespace dslaunch::graph {

// Places NODE's outputs. Returns false if NODE cannot run on its split inputs. At least one input
// of NODE is not whole.
using PlacementRule = bool (*)(FlowState& flow, Node& node);

// Rules by kind of operator.
class PlacementRules {
  public:
    // NAMES are qualified, such as aten::view.
    void add(std::initializer_list<const char*> names, PlacementRule rule) {
        for (const char* name : names) rules_[Symbol::fromQualString(name)] = rule;
    }
    // Returns null if there is no rule.
    [[nodiscard]] PlacementRule find(Symbol kind) const {
        const auto found = rules_.find(kind);
        return found == rules_.end() ? nullptr : found->second;
    }

  private:
    std::unordered_map<Symbol, PlacementRule> rules_;
};
void add_attention_rules(PlacementRules& rules);  // sequence_attention_rules.cpp
void add_operator_rules(PlacementRules& rules);   // operator_rules.cpp
void add_product_rules(PlacementRules& rules);    // product_rules.cpp
void add_shape_rules(PlacementRules& rules);      // shape_rules.cpp

}  // namespace dslaunch::graph
