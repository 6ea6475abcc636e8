// Whole jobs in pipelines: the losses and weights of one rank, bit for bit, over schedules, ZeRO
// stages, hosts, checkpoints and evaluation.
#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

struct Pipeline {
    int stages = 2;
    int data = 1;  // ranks of a stage
    std::string schedule = "1f1b";
    int zero = 0;
};

// As DeepSpeed users write it: 4 micro batches a step.
Json config_of(const std::string& name, int steps) {
    Json config = fixture_config(facts_of(name), 4, steps);
    config["gradient_clipping"] = 1.0;
    return config;
}

Json in_pipeline(Json config, const Pipeline& pipeline) {
    config["dslaunch"]["pipeline"] = {{"stages", pipeline.stages}, {"schedule", pipeline.schedule}};
    config["zero_optimization"] = {{"stage", pipeline.zero}};
    return config;
}

std::string weights_of(const TemporaryFolder& folder) {
    return bytes_of(folder.path() + "/out/model.safetensors");
}

// What the same job comes to without a pipeline.
struct Alone {
    std::vector<double> losses;
    std::string weights;

    Alone(const std::string& name, const Json& config, int data) {
        const TemporaryFolder folder;
        losses = train_well(folder, ranks(data), name, config).losses();
        weights = weights_of(folder);
        REQUIRE(!weights.empty());
    }
};

void check_alike(const std::string& name, const Json& config, const Alone& alone,
                 const Pipeline& pipeline) {
    INFO(name << ": " << pipeline.stages << " stages of " << pipeline.data << " ranks, "
              << pipeline.schedule << ", ZeRO " << pipeline.zero);
    const TemporaryFolder folder;
    const auto trained = train_well(folder, ranks(pipeline.stages * pipeline.data), name,
                                    in_pipeline(config, pipeline));
    CHECK(trained.losses() == alone.losses);
    CHECK(weights_of(folder) == alone.weights);
}

}  // namespace

TEST_CASE("pipelines of processes train bit for bit as one rank does") {
    for (const std::string name : {"gpt", "mixture", "gpt-dropout"}) {
        const Json config = config_of(name, 3);
        const Alone alone(name, config, 1);
        check_alike(name, config, alone, {2, 1, "gpipe", 0});
        check_alike(name, config, alone, {3, 1, "1f1b", 1});
        check_alike(name, config, alone, {2, 1, "zb-h1", 3});
    }
    const Json config = config_of("gpt", 3);
    const Alone pair("gpt", config, 2);
    check_alike("gpt", config, pair, {2, 2, "1f1b", 2});
}

}  // namespace dslaunch::test
