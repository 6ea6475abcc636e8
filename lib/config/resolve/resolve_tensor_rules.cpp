// resolve_tensor_rules(): how the user wants parameters to be split among ranks.
#include <fmt/format.h>

#include <optional>
#include <regex>
#include <string>
#include <string_view>

#include "base/text.h"
#include "config/read/quoteless.h"
#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

void own_rules(KeyReader& keys, RunConfig& run) {
    const std::string path = "dslaunch.tensor.rules";
    const Value* const rules = keys.given(path);
    if (rules == nullptr) return;
    keys.record(path, *rules, rules->origin);
    const std::string wanted = "must be an object that maps patterns of parameter names to rules";
    if (!rules->is(Kind::kObject)) return keys.problem(path, wanted + ", not " + describe(*rules));
    for (size_t i = 0; i < rules->keys.size(); ++i) {
        const Value& rule = rules->items[i];
        const bool known =
            rule.is(Kind::kString) && (rule.text == "column" || rule.text == "row" ||
                                       rule.text == "vocabulary" || rule.text == "replicated");
        if (!known)
            return keys.problem(path, fmt::format("the rule of {} must be one of column, row, "
                                                  "vocabulary, replicated, not {}",
                                                  printable(rules->keys[i]), shown(rule)));
        run.tensor.rules.emplace_back(rules->keys[i], rule.text);
    }
}

// Returns the rule that DeepSpeed calls TEXT; nullopt for another word.
std::optional<std::string> rule_of(std::string_view text) {
    std::string word = lower(text);
    if (word == "skip") return "replicated";
    if (word == "row" || word == "column") return word;
    return std::nullopt;
}

// Adds the rules of SPEC, one of layer_specs. Returns the problem; empty if there is none.
std::string add_spec(const Value& spec, RunConfig& run) {
    if (!spec.is(Kind::kObject)) return "must be a list of objects with `patterns`";
    const Value* const patterns = spec.find("patterns");
    if (patterns == nullptr || !is_strings(*patterns))
        return "each rule needs `patterns`, a list of regular expressions";
    const Value* const type = spec.find("partition_type");
    const auto rule = rule_of(type == nullptr ? "column" : type->text);
    if (!rule)
        return fmt::format("partition_type must be row, column or skip, not {}", shown(*type));
    for (const std::string& pattern : texts_of(*patterns)) {
        if (const std::string fault = fault_of_expression(pattern); !fault.empty())
            return fmt::format("`{}` {}", printable(pattern), fault);
        run.tensor.expressions.emplace_back(pattern, *rule);
    }
    return "";
}

void layer_specs(KeyReader& keys, RunConfig& run) {
    const Value* const specs = keys.given(kLayerSpecs);
    if (specs == nullptr) return;
    keys.record(kLayerSpecs, *specs, specs->origin);
    for (const Value& spec : specs->items)
        if (const std::string problem = add_spec(spec, run); !problem.empty())
            return keys.problem(kLayerSpecs, problem);
}

}  // namespace

std::string fault_of_expression(const std::string& text) {
    constexpr size_t kLongest = 1000;
    if (text.size() > kLongest) return fmt::format("is longer than {} characters", kLongest);
    try {
        static_cast<void>(std::regex(text));
    } catch (const std::regex_error&) {
        return "is not a regular expression, or contains a form that is not supported here, such "
               "as a named group or lookbehind";
    }
    return "";
}

void resolve_tensor_rules(KeyReader& keys, RunConfig& run) {
    own_rules(keys, run);
    layer_specs(keys, run);
}

}  // namespace dslaunch::config
