#include "plan/tensor/tensor_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <regex>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::plan {

TensorRule parse_tensor_rule(std::string_view pattern, std::string_view word) {
    constexpr std::array kRules = {TensorRule::kColumn, TensorRule::kRow, TensorRule::kVocabulary,
                                   TensorRule::kReplicated};
    if (const auto* found = std::ranges::find(kRules, word, tensor_rule_name);
        found != kRules.end())
        return *found;
    fail(ExitCode::kConfig,
         "tensor rule of `{}`: `{}` is not one of column, row, vocabulary, replicated",
         printable(pattern), printable(word));
}

namespace {

// Gives a rule to each linear layer that has none and matches one of the expressions. The first
// expression that matches applies.
void match_expressions(const TensorRules& rules, std::span<const std::string> names,
                       const std::vector<bool>& is_linear,
                       std::vector<std::optional<TensorRule>>& found) {
    bool fits = rules.expressions.empty();
    for (const auto& [text, rule] : rules.expressions) {
        const std::regex expression(text);
        for (size_t i = 0; i < names.size(); ++i) {
            if (!is_linear[i] ||
                !std::regex_search(names[i], expression, std::regex_constants::match_continuous))
                continue;
            fits = true;
            if (!found[i]) found[i] = rule;
        }
    }
    if (!fits)
        fail(
            ExitCode::kConfig,
            "tensor_parallel.partition_config: no pattern of layer_specs matches a linear layer's "
            "weight of the model, whose first parameter is `{}`. Change the patterns, or remove "
            "the section; without the section, dslaunch decides from the graph how to split layers",
            names.empty() ? "" : names.front());
}

}  // namespace

std::vector<std::optional<TensorRule>> match_tensor_rules(const TensorRules& rules,
                                                          std::span<const std::string> names,
                                                          const std::vector<bool>& is_linear) {
    std::vector<std::optional<TensorRule>> found(names.size());
    for (const auto& [pattern, rule] : rules.patterns) {
        bool fits = false;
        for (size_t i = 0; i < names.size(); ++i) {
            if (!fits_pattern(pattern, names[i])) continue;
            fits = true;
            if (!found[i]) found[i] = rule;
        }
        if (fits) continue;
        const std::optional<std::string> guess = nearest(pattern, names);
        fail(ExitCode::kConfig, "tensor rule `{}` matches no parameter of the model{}",
             printable(pattern),
             guess ? fmt::format("; did you mean `{}`?", *guess)
                   : fmt::format("; the model's first parameter is `{}`",
                                 names.empty() ? "" : names.front()));
    }
    match_expressions(rules, names, is_linear, found);
    return found;
}

}  // namespace dslaunch::plan
