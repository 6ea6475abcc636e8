// LAMB, 1-bit LAMB, Adafactor and Muon, and the keys that give some parameters numbers of their
// own.
#include "config/resolve/resolve.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

// Returns TEXT resolved, with its problems.
Resolved read(const std::string& text, int64_t world_size = 1) {
    ResolveOptions options;
    options.world_size = world_size;
    return resolve(parse_config(text, "c"), options);
}

std::string problem_of(const Resolved& result, const std::string& path) {
    for (const Problem& problem : result.problems)
        if (problem.path == path) return problem.message;
    return "";
}

OptimizerConfig optimizer(const std::string& type, const std::string& params) {
    return read(fmt::format("{{optimizer: {{type: {}, params: {{{}}}}}}}", type, params), 1)
        .config.optimizer;
}

Resolved with_groups(const std::string& type, const std::string& keys) {
    return read(fmt::format("{{optimizer: {{type: {}, params: {{lr: 0.5}}}}, dslaunch: "
                            "{{optimizer: {{{}}}}}}}",
                            type, keys),
                1);
}

}  // namespace

TEST_CASE("LAMB has DeepSpeed's defaults") {
    const OptimizerConfig lamb = optimizer("Lamb", "lr: 0.25, weight_decay: 0.1");
    CHECK(lamb.kind == OptimizerKind::kLamb);
    CHECK(lamb.min_coeff == 0.01);
    CHECK(lamb.max_coeff == 10);
    CHECK(lamb.bias_correction);
    CHECK(lamb.needs_whole_tensors());
    CHECK_FALSE(lamb.decays_gradient());
    const Resolved wrong =
        read("{optimizer: {type: Lamb, params: {min_coeff: 2, max_coeff: 1}}}", 1);
    CHECK(problem_of(wrong, "optimizer.params.min_coeff") == "2 is above max_coeff, which is 1");
}

TEST_CASE("1-bit LAMB has DeepSpeed's defaults, and bounds that are bounds") {
    const OptimizerConfig lamb = optimizer("OneBitLamb", "lr: 0.25, freeze_step: 7");
    CHECK(lamb.kind == OptimizerKind::kOneBitLamb);
    CHECK(lamb.compresses());
    CHECK(lamb.needs_whole_tensors());
    CHECK(lamb.min_coeff == 0.01);
    CHECK(lamb.max_coeff == 10);
    CHECK(lamb.one_bit.freeze_step == 7);
    CHECK(lamb.one_bit.coeff_beta == 0.9);
    CHECK(lamb.one_bit.factor_max == 4);
    CHECK(lamb.one_bit.factor_min == 0.5);
    CHECK(lamb.one_bit.factor_threshold == 0.1);
    const Resolved wrong =
        read("{optimizer: {type: OneBitLamb, params: {factor_min: 2, factor_max: 1}}}", 1);
    CHECK(problem_of(wrong, "optimizer.params.factor_min") == "2 is above factor_max, which is 1");
}

TEST_CASE("Adafactor has transformers' parameters and defaults") {
    const Resolved defaults = read("{optimizer: {type: Adafactor}}", 1);
    CHECK(problem_of(defaults, "optimizer.params.lr").empty());
    CHECK(defaults.config.optimizer.kind == OptimizerKind::kAdafactor);
    CHECK(defaults.config.optimizer.adafactor == AdafactorConfig{});
    CHECK(defaults.config.optimizer.lr == 1);
    CHECK(defaults.config.scheduler.kind == SchedulerKind::kRelativeStep);
    CHECK(defaults.config.zero.shard == read("{optimizer: {type: Lamb}}", 1).config.zero.shard);
    const OptimizerConfig given =
        optimizer("Adafactor",
                  "lr: 0.25, relative_step: false, scale_parameter: false, eps: [0.5, 0.125], "
                  "clip_threshold: 2, decay_rate: -0.5, beta1: 0.75, weight_decay: 0.1");
    CHECK(given.lr == 0.25);
    CHECK(given.beta1 == 0.75);
    CHECK(given.weight_decay == 0.1);
    CHECK(given.adafactor == AdafactorConfig{0.5, 0.125, 2, -0.5, true, false});
    const auto problem = [](const std::string& params, const std::string& path) {
        return problem_of(
            read(fmt::format("{{optimizer: {{type: Adafactor, params: {{{}}}}}}}", params), 1),
            path);
    };
    CHECK(problem("lr: 0.1", "optimizer.params.lr").starts_with("relative_step, which is true"));
    CHECK(problem("warmup_init: true, relative_step: false", "optimizer.params.warmup_init") ==
          "is used only with relative_step");
    CHECK(problem("eps: 0.1", "optimizer.params.eps") ==
          "must be two numbers for Adafactor, e.g. [1e-30, 1e-3]");
    CHECK(problem("eps: [1, -1]", "optimizer.params.eps").starts_with("must not be negative"));
    CHECK(problem("decay_rate: 0.8", "optimizer.params.decay_rate") == "must be negative");
    CHECK(problem_of(read("{optimizer: {type: Adam, params: {eps: [1, 2]}}}", 1),
                     "optimizer.params.eps") == "Adam uses a single number: give one number");
    const Resolved scheduled =
        read("{optimizer: {type: Adafactor}, scheduler: {type: WarmupLR}}", 1);
    CHECK(problem_of(scheduled, "scheduler.type").starts_with("relative_step, which is true"));
}

TEST_CASE("Muon's rates are lr, or its defaults, unless each has its own") {
    const OptimizerConfig defaults = optimizer("Muon", "");
    CHECK(defaults.kind == OptimizerKind::kMuon);
    CHECK(defaults.lr == 0.02);
    CHECK(defaults.rest_lr == 3e-4);
    CHECK(defaults.momentum == 0.95);
    CHECK(defaults.beta2 == 0.95);
    CHECK(defaults.eps == 1e-10);
    CHECK(defaults.newton_schulz == NewtonSchulz::kGram);
    const OptimizerConfig one = optimizer("Muon", "lr: 0.5, betas: [0.5, 0.75]");
    CHECK(one.lr == 0.5);
    CHECK(one.rest_lr == 0.5);
    CHECK(one.beta1 == 0.5);
    const OptimizerConfig each =
        optimizer("muon", "lr: 0.5, adam_lr: 0.25, muon_lr: 0.125, ns_method: standard");
    CHECK(each.lr == 0.125);
    CHECK(each.rest_lr == 0.25);
    CHECK(each.newton_schulz == NewtonSchulz::kStandard);
}

TEST_CASE("optimizers of whole tensors are sharded by whole parameters") {
    const auto shard = [](const std::string& more) {
        return read("{optimizer: {type: Lamb}, zero_optimization: {stage: 2}" + more + "}", 2);
    };
    CHECK(shard("").config.zero.shard == ShardBy::kParameter);
    CHECK(shard(", dslaunch: {shard: auto}").config.zero.shard == ShardBy::kParameter);
    CHECK(shard(", dslaunch: {shard: layer}").config.zero.shard == ShardBy::kLayer);
    CHECK_THAT(problem_of(shard(", dslaunch: {shard: flat}"), "dslaunch.shard"),
               Catch::Contains("`flat` cuts tensors, but Lamb updates whole tensors"));
    const Resolved offloaded = read(
        "{optimizer: {type: Lamb}, zero_optimization: {stage: 2, offload_optimizer: {device: nvme, "
        "nvme_path: /tmp}}}",
        2);
    CHECK_THAT(problem_of(offloaded, "zero_optimization.offload_optimizer.device"),
               Catch::Contains("in chunks that cut tensors"));
    const Resolved split = read("{optimizer: {type: Muon}, dslaunch: {tensor: {size: 2}}}", 2);
    CHECK_THAT(problem_of(split, "dslaunch.tensor.size"), Catch::Contains("Muon"));
}

TEST_CASE("groups of parameters are read, and wrong ones refused") {
    const Resolved groups = with_groups(
        "AdamW",
        "decay: matrices, groups: [{match: '*.bias', lr: 0.25, weight_decay: 0.5}, {match: [a, b], "
        "betas: [0.5, 0.75], eps: 0.125}]");
    CHECK(groups.problems.empty());
    CHECK(groups.config.decays_matrices_only);
    REQUIRE(groups.config.parameter_groups.size() == 2);
    CHECK(groups.config.parameter_groups[0] ==
          ParameterGroup{{"*.bias"}, 0.25, 0.5, {}, {}, {}, {}});
    CHECK(groups.config.parameter_groups[1] ==
          ParameterGroup{{"a", "b"}, {}, {}, 0.5, 0.75, 0.125, {}});
    CHECK_THAT(
        problem_of(with_groups("AdamW", "groups: [{lr: 1}]"), "dslaunch.optimizer.groups[0]"),
        Catch::Contains("needs `match`"));
    CHECK_THAT(problem_of(with_groups("AdamW", "groups: [{match: a, muon: true}]"),
                          "dslaunch.optimizer.groups[0].muon"),
               Catch::Contains("only with optimizer.type Muon"));
    CHECK(
        with_groups("Muon", "groups: [{match: a, muon: false}]").config.parameter_groups[0].muon ==
        false);
    CHECK_FALSE(with_groups("AdamW", "groups: [{match: a, learning_rate: 1}]").problems.empty());
    CHECK_FALSE(with_groups("AdamW", "groups: [{match: a, lr: fast}]").problems.empty());
    CHECK_FALSE(with_groups("AdamW", "groups: [{match: a, betas: [1, 2]}]").problems.empty());
}

TEST_CASE("amsgrad is Adam's, and eps_inside_sqrt LAMB's") {
    const auto with = [](const std::string& type, const std::string& params) {
        return read(fmt::format("{{optimizer: {{type: {}, params: {{{}}}}}}}", type, params));
    };
    for (const char* type : {"Adam", "AdamW"}) {
        CHECK(with(type, "amsgrad: true").config.optimizer.amsgrad);
        CHECK_FALSE(with(type, "amsgrad: false").config.optimizer.amsgrad);
        CHECK_FALSE(with(type, "").config.optimizer.amsgrad);
    }
    CHECK(with("Lamb", "eps_inside_sqrt: true, amsgrad: false").config.optimizer.eps_inside_sqrt);
    CHECK_FALSE(with("Lamb", "").config.optimizer.eps_inside_sqrt);
    const Resolved one_bit = with("OneBitLamb", "eps_inside_sqrt: true");
    CHECK_FALSE(one_bit.config.optimizer.eps_inside_sqrt);
    CHECK(std::ranges::any_of(one_bit.notes, [](const std::string& note) {
        return note.find("eps_inside_sqrt") != std::string::npos;
    }));
}
