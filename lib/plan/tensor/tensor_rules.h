// A user's rules for how tensor ranks share parameters, and the rule that fits each parameter's
// name. No LibTorch, no shared state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/tensor/tensor_plan.h"

namespace dslaunch::plan {

// The rules that a user gives: patterns of parameter names, in which `*` stands for any characters.
// If several patterns match a name, the first one applies. If no pattern matches, the graph
// decides.
struct TensorRules {
    int size = 1;
    // True if each rank computes only its share of the positions between split layers (Megatron-LM,
    // arXiv:2205.05198): in norms, dropout and sums of residuals.
    bool share_positions = false;
    std::vector<std::pair<std::string, TensorRule>> patterns;
    // Regular expressions (std::regex's default grammar) for the beginnings of the names of linear
    // layers' weights. They apply after the patterns.
    std::vector<std::pair<std::string, TensorRule>> expressions;
    bool strict = false;  // true: refuses a model whose attention, or a layer of an indivisible
                          // width, cannot be split
};

// Returns the rule named WORD: "column", "row", "vocabulary", "replicated". Throws Error{kConfig},
// which lists these, for another word.
[[nodiscard]] TensorRule parse_tensor_rule(std::string_view pattern, std::string_view word);

// Returns the rule for each of NAMES; nullopt if there is none. IS_LINEAR: which names are weights
// of linear layers. Throws Error{kConfig}, with the most similar name, if a pattern matches no
// name, and if there are expressions and not one matches. REQUIRES: as many IS_LINEAR as NAMES.
[[nodiscard]] std::vector<std::optional<TensorRule>> match_tensor_rules(
    const TensorRules& rules, std::span<const std::string> names,
    const std::vector<bool>& is_linear);

}  // namespace dslaunch::plan
