#include "job/setup/parameter_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {

namespace {

using config::OptimizerConfig;
using config::OptimizerKind;
using config::ParameterGroup;

const ParameterGroup* group_of(const config::RunConfig& config, const std::string& name) {
    for (const ParameterGroup& group : config.parameter_groups)
        for (const std::string& pattern : group.match)
            if (fits_pattern(pattern, name)) return &group;
    return nullptr;
}

bool is_hidden_matrix(const graph::ModelParameter& parameter) {
    if (parameter.tensor.dim() < 2) return false;
    const std::string name = lower(parameter.name);
    for (const char* const part : {"embed", "lm_head"})
        if (name.find(part) != std::string::npos) return false;
    const std::vector<std::string> modules = split(name, '.');
    return std::ranges::none_of(modules, [](const std::string& module) {
        return module == "wte" || module == "wpe" || module == "head";
    });
}

void choose_kind(OptimizerConfig& rule, const ParameterGroup* group,
                 const graph::ModelParameter& parameter) {
    if (rule.kind != OptimizerKind::kMuon) return;
    const bool told = group != nullptr && group->muon.has_value();
    if (told && *group->muon && parameter.tensor.dim() < 2)
        fail(ExitCode::kConfig,
             "dslaunch.optimizer.groups: `muon: true` applies to {}, which has {} dimensions, but "
             "Muon updates only matrices: narrow the group's patterns",
             printable(parameter.name), parameter.tensor.dim());
    if (told ? *group->muon : is_hidden_matrix(parameter)) return;
    rule.kind = OptimizerKind::kAdamW;
    rule.lr = rule.rest_lr;
}

zero::UpdateRule rule_of(const config::RunConfig& config, const graph::ModelParameter& parameter) {
    const ParameterGroup* const group = group_of(config, parameter.name);
    zero::UpdateRule rule{config.optimizer, 1};
    choose_kind(rule.optimizer, group, parameter);
    if (config.decays_matrices_only && parameter.tensor.dim() < 2) rule.optimizer.weight_decay = 0;
    if (group != nullptr) {
        OptimizerConfig& own = rule.optimizer;
        own.lr = group->lr.value_or(own.lr);
        own.weight_decay = group->weight_decay.value_or(own.weight_decay);
        own.beta1 = group->beta1.value_or(own.beta1);
        own.beta2 = group->beta2.value_or(own.beta2);
        own.eps = group->eps.value_or(own.eps);
    }
    if (config.optimizer.lr > 0) rule.lr_scale = rule.optimizer.lr / config.optimizer.lr;
    return rule;
}

// Refuses a pattern that matches no parameter: usually the model does not have the name.
void check_patterns(const config::RunConfig& config, const graph::Model& model) {
    for (const ParameterGroup& group : config.parameter_groups)
        for (const std::string& pattern : group.match) {
            const bool fits = std::ranges::any_of(model.parameters(), [&](const auto& parameter) {
                return parameter.tensor.requires_grad() && fits_pattern(pattern, parameter.name);
            });
            if (fits) continue;
            fail(ExitCode::kConfig,
                 "dslaunch.optimizer.groups: `{}` matches no trained parameter; `dslaunch model "
                 "show MODEL` lists the names of parameters",
                 printable(pattern));
        }
}

}  // namespace

zero::UpdateRules parameter_rules(const config::RunConfig& config, const graph::Model& model) {
    check_patterns(config, model);
    zero::UpdateRules rules;
    for (const graph::ModelParameter& parameter : model.parameters()) {
        const zero::UpdateRule rule = rule_of(config, parameter);
        const auto found = std::ranges::find(rules.rules, rule);
        rules.of_parameter.push_back(static_cast<int>(found - rules.rules.begin()));
        if (found == rules.rules.end()) rules.rules.push_back(rule);
    }
    if (rules.rules.empty()) rules.rules.push_back({config.optimizer, 1});
    return rules;
}

std::string describe_rules(const zero::UpdateRules& rules, const graph::Model& model) {
    if (rules.rules.size() < 2) return "";
    std::string text;
    for (size_t r = 0; r < rules.rules.size(); ++r) {
        int64_t tensors = 0, numel = 0;
        for (size_t i = 0; i < model.parameters().size(); ++i) {
            const graph::ModelParameter& parameter = model.parameters()[i];
            const bool follows = rules.index_of(static_cast<int>(i)) == static_cast<int>(r);
            if (!parameter.tensor.requires_grad() || !follows) continue;
            tensors += 1;
            numel += parameter.tensor.numel();
        }
        if (tensors == 0) continue;
        const OptimizerConfig& rule = rules.rules[r].optimizer;
        text += fmt::format("{}{} tensors, {} elements: {}, lr {}, weight decay {}",
                            text.empty() ? "" : "; ", tensors, numel,
                            zero::ShardOptimizer::name(rule), rule.lr, rule.weight_decay);
    }
    return text;
}

}  // namespace dslaunch::job
