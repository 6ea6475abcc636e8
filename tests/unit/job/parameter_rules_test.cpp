// The rules by which a model's parameters are updated: each parameter's optimizer and its numbers.
#include "job/setup/parameter_rules.h"

#include <ATen/Functions.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch::job {
namespace {

using config::OptimizerKind;
using config::ParameterGroup;

graph::Model decoder() {
    return test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return ((x + self.embed + self.norm) @ self.up + self.bias).sum() + "
        "self.lm_head.sum()\n",
        {{"embed", at::ones({4, 4})},
         {"norm", at::ones({4})},
         {"up", at::ones({4, 8})},
         {"bias", at::ones({8})},
         {"lm_head", at::ones({4, 4})}});
}

zero::UpdateRule rule_of(const zero::UpdateRules& rules, const graph::Model& model,
                         const std::string& name) {
    for (size_t i = 0; i < model.parameters().size(); ++i)
        if (model.parameters()[i].name == name)
            return rules.rules[static_cast<size_t>(rules.index_of(static_cast<int>(i)))];
    FAIL(name << " is no parameter");
    return {};
}

config::RunConfig config_of(OptimizerKind kind) {
    config::RunConfig config;
    config.optimizer.kind = kind;
    config.optimizer.lr = 0.5;
    config.optimizer.rest_lr = 0.125;
    config.optimizer.weight_decay = 0.25;
    return config;
}

}  // namespace

TEST_CASE("without groups all parameters follow one rule") {
    const graph::Model model = decoder();
    const zero::UpdateRules rules = parameter_rules(config_of(OptimizerKind::kAdamW), model);
    CHECK(rules.rules.size() == 1);
    CHECK(rules.rules[0].lr_scale == 1);
    CHECK(describe_rules(rules, model).empty());
}

TEST_CASE("decay of matrices leaves norms and biases alone, a group says otherwise") {
    const graph::Model model = decoder();
    config::RunConfig config = config_of(OptimizerKind::kAdamW);
    config.decays_matrices_only = true;
    config.parameter_groups = {{{"bias", "nor*"}, {}, 0.75, {}, {}, {}, {}},
                               {{"*"}, 0.25, {}, 0.5, 0.75, 0.125, {}}};
    const zero::UpdateRules rules = parameter_rules(config, model);
    // The first group that fits counts: `*` gives nothing to the bias.
    CHECK(rule_of(rules, model, "bias").optimizer.weight_decay == 0.75);
    CHECK(rule_of(rules, model, "bias").lr_scale == 1);
    const zero::UpdateRule up = rule_of(rules, model, "up");
    CHECK(up.lr_scale == 0.5);
    CHECK(up.optimizer.weight_decay == 0.25);
    CHECK(up.optimizer.beta1 == 0.5);
    CHECK(up.optimizer.beta2 == 0.75);
    CHECK(up.optimizer.eps == 0.125);
    config.parameter_groups.clear();
    const zero::UpdateRules plain = parameter_rules(config, model);
    CHECK(rule_of(plain, model, "norm").optimizer.weight_decay == 0);
    CHECK(rule_of(plain, model, "embed").optimizer.weight_decay == 0.25);
    CHECK(describe_rules(plain, model) ==
          "3 tensors, 64 elements: adamw, lr 0.5, weight decay 0.25; 2 tensors, 12 elements: "
          "adamw, lr 0.5, weight decay 0");
}

TEST_CASE("Muon updates hidden matrices, AdamW the rest at its own rate") {
    const graph::Model model = decoder();
    config::RunConfig config = config_of(OptimizerKind::kMuon);
    const zero::UpdateRules rules = parameter_rules(config, model);
    CHECK(rule_of(rules, model, "up").optimizer.kind == OptimizerKind::kMuon);
    CHECK(rule_of(rules, model, "up").lr_scale == 1);
    for (const char* name : {"embed", "norm", "bias", "lm_head"}) {
        CAPTURE(name);
        CHECK(rule_of(rules, model, name).optimizer.kind == OptimizerKind::kAdamW);
        CHECK(rule_of(rules, model, name).lr_scale == 0.25);
    }
    config.parameter_groups = {{{"embed"}, {}, {}, {}, {}, {}, true},
                               {{"up"}, 0.5, {}, {}, {}, {}, false}};
    const zero::UpdateRules told = parameter_rules(config, model);
    CHECK(rule_of(told, model, "embed").optimizer.kind == OptimizerKind::kMuon);
    CHECK(rule_of(told, model, "up").optimizer.kind == OptimizerKind::kAdamW);
    CHECK(rule_of(told, model, "up").lr_scale == 1);
    config.parameter_groups = {{{"bias"}, {}, {}, {}, {}, {}, true}};
    CHECK_THROWS_WITH(parameter_rules(config, model),
                      Catch::Contains("Muon updates only matrices"));
}

TEST_CASE("a pattern that fits no trained parameter is a mistake") {
    config::RunConfig config = config_of(OptimizerKind::kAdamW);
    config.parameter_groups = {{{"*.bias"}, {}, 0, {}, {}, {}, {}}};
    CHECK_THROWS_WITH(parameter_rules(config, decoder()),
                      Catch::Contains("`*.bias` matches no trained parameter"));
}

}  // namespace dslaunch::job
