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
    // True if each rank computes norms, dropout and sums of residuals only for its share of the
    // positions (Megatron-LM, arXiv:2205.05198). These operations lie between split layers.
    bool share_positions = false;
    std::vector<std::pair<std::string, TensorRule>> patterns;
    // Regular expressions (std::regex's default grammar) for names. An expression must match the
    // beginning of the name of a linear layer's weight. The patterns take precedence.
    std::vector<std::pair<std::string, TensorRule>> expressions;
    bool strict = false;  // true: refuses a model whose attention, or a layer of an indivisible
                          // width, cannot be split
};

// Returns the rule named WORD: "column", "row", "vocabulary", "replicated". Throws Error{kConfig},
// which lists these, for another word.
[[nodiscard]] TensorRule parse_tensor_rule(std::string_view pattern, std::string_view word);

// Returns the rule for each of NAMES; nullopt if there is none. IS_LINEAR is true for each name of
// a linear layer's weight. Throws Error{kConfig} if a pattern matches no name; the message contains
// the most similar name. Throws Error{kConfig} if no expression matches any name, although there
// are expressions. REQUIRES: NAMES and IS_LINEAR have the same length.
[[nodiscard]] std::vector<std::optional<TensorRule>> match_tensor_rules(
    const TensorRules& rules, std::span<const std::string> names,
    const std::vector<bool>& is_linear);

}  // namespace dslaunch::plan
