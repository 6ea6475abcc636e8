// Updates that lag, from zero_optimization.zenflow to the run config.

#include <fmt/core.h>

#include <string>

#include "resolved.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;

namespace {

std::string with_zenflow(const std::string& section, const std::string& more = "stage: 2",
                         const std::string& top = "") {
    return fmt::format("{{zero_optimization: {{{}, zenflow: {{{}}}}}{}}}", more, section, top);
}

LaggingConfig lagging(const std::string& section) {
    return resolved(with_zenflow(section)).config.lagging;
}

std::string first_problem(const std::string& text) {
    ResolveOptions options;
    options.world_size = 4;
    const std::vector<Problem> problems = resolve(parse_config(text, "c"), options).problems;
    return problems.empty() ? "" : problems.front().path + ": " + problems.front().message;
}

}  // namespace

TEST_CASE("without the section every step updates everything") {
    CHECK(resolved("{zero_optimization: {stage: 2}}").config.lagging == LaggingConfig{});
    CHECK(resolved("{zero_optimization: {stage: 2, zenflow: null}}").config.lagging ==
          LaggingConfig{});
}

TEST_CASE("zenflow's numbers are DeepSpeed's, and auto is a number") {
    CHECK(lagging("") == LaggingConfig{true, 0.1, 4, 64, false, 0});
    CHECK(lagging("update_interval: auto, select_interval: auto") ==
          LaggingConfig{true, 0.1, 4, 64, false, 0});
    CHECK(
        lagging("topk_ratio: 0.05, select_strategy: step, select_interval: 8, update_interval: 2, "
                "overlap_step: true, full_warm_up_rounds: 5, offload: true") ==
        LaggingConfig{true, 0.05, 2, 8, true, 5});
    // An epoch consists of whole intervals.
    CHECK(lagging("steps_per_epoch: 10").select_interval == 12);
    CHECK(lagging("steps_per_epoch: 10, select_strategy: epoch, select_interval: 3")
              .select_interval == 36);
    const Resolved result = resolved(with_zenflow(""));
    CHECK(value_at(result, "zero_optimization.zenflow.update_interval").origin ==
          "derived: auto = 4, as in the ZenFlow paper");
}

TEST_CASE("what zenflow cannot do is refused by name") {
    struct Bad {
        std::string text;
        std::string begin;
    };
    const std::string section = "zero_optimization.zenflow";
    for (const Bad& bad : {
             Bad{with_zenflow("topk_ratio: 0"), section + ".topk_ratio: must be above 0"},
             Bad{with_zenflow("topk_ratio: 1"), section + ".topk_ratio: must be above 0"},
             Bad{with_zenflow("update_interval: 0"),
                 section + ".update_interval: must be a number"},
             Bad{with_zenflow("update_interval: often"), section + ".update_interval: must be"},
             Bad{with_zenflow("update_interval: 4, select_interval: 6"),
                 section + ".select_interval: 6 is not a multiple of update_interval, 4"},
             Bad{with_zenflow("select_strategy: epoch"),
                 section + ".select_strategy: `epoch` needs steps_per_epoch"},
             Bad{with_zenflow("", "stage: 1", ", optimizer: {type: SGD, params: {lr: 1}}"),
                 section + ": supports only Adam and AdamW"},
             Bad{with_zenflow("", "stage: 3, offload_param: {device: nvme, nvme_path: /d}"),
                 "zero_optimization.offload_param.device: with zenflow, a part of every tensor"},
             Bad{with_zenflow("", "stage: 1", ", dslaunch: {shard: row}"),
                 "dslaunch.shard: zenflow selects units within blocks"},
             Bad{with_zenflow("", "stage: 1", ", dslaunch: {shard: auto}"),
                 "dslaunch.shard: zenflow selects units within blocks of a tensor, but `auto` may "
                 "cut the blocks"},
             Bad{with_zenflow("", "stage: 1", ", dslaunch: {pipeline: {stages: 2}}"),
                 "dslaunch.pipeline.stages: pipeline stages cannot be used together with zenflow"},
             Bad{with_zenflow("", "stage: 1", ", dslaunch: {tensor: {size: 2}}"),
                 "dslaunch.tensor.size: zenflow needs whole tensors"},
             Bad{with_zenflow("", "stage: 1", ", dslaunch: {optimizer: {states: bf16}}"),
                 "dslaunch.optimizer.states: a unit of zenflow is smaller than"},
             Bad{with_zenflow("", "stage: 1, offload_optimizer: {device: nvme, nvme_path: /d}",
                              ", dslaunch: {offload: {placement: auto}}"),
                 "dslaunch.offload.placement: zenflow keeps the states of important units"},
             Bad{with_zenflow("", "stage: 1, offload_optimizer: {device: nvme, nvme_path: /d}",
                              ", dslaunch: {offload: {compress: {moments: int8}}}"),
                 "dslaunch.offload.compress.moments: with zenflow, the states of important units"},
             Bad{with_zenflow("", "stage: 1", ", dslaunch: {device: cuda}"),
                 section + ": late updates are not available on a GPU"},
         }) {
        INFO(bad.text);
        CHECK_THAT(first_problem(bad.text), Catch::StartsWith(bad.begin));
    }
    CHECK(first_problem(with_zenflow("", "stage: 1")).empty());
}
