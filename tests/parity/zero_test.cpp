// ZeRO stages 1 to 3 through the real dslaunch. They have PyTorch's traces, the same metrics and
// weights as each other to the last bit, and the memory that the stage promises.
#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

// Returns the options of a stage at which no parameter of the fixtures is small enough to be kept
// whole, and buckets are cut.
Json zero_stage(int stage) {
    return {
        {"stage", stage}, {"reduce_bucket_size", 8000}, {"stage3_param_persistence_threshold", 0}};
}

struct StageRun {
    std::vector<Json> metrics;
    std::string weights;
};

StageRun run_stage(int stage, const std::vector<int>& slots, const std::string& model,
                   Json config) {
    const TemporaryFolder folder;
    config["zero_optimization"].update(zero_stage(stage));
    // The order of sums must be the same at all stages. Stages 2 and 3 reduce each micro step.
    config["dslaunch"]["communication"]["reduce"] = "micro_step";
    StageRun run;
    run.metrics = train_well(folder, hosts(folder, slots), model, config).metrics;
    run.weights = content_of(folder.path() + "/out/model.safetensors");
    REQUIRE(!run.weights.empty());
    return run;
}

// Compares lines of steps and of evaluations.
void check_equal_lines(const std::vector<Json>& a, const std::vector<Json>& b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i)
        for (const char* key :
             {"step", "loss", "lr", "grad_norm", "loss_scale", "skipped", "eval_loss"}) {
            INFO("line " << i << ", " << key << ": " << a[i].dump() << " and " << b[i].dump());
            REQUIRE(a[i].contains(key) == b[i].contains(key));
            if (a[i].contains(key)) CHECK(a[i].at(key) == b[i].at(key));
        }
}

void check_stages_equal(const std::string& name, const std::vector<int>& slots,
                        const Json& precision) {
    Json config = fixture_config(fixture_facts(name), 2, 4);
    config["gradient_clipping"] = 0.5;
    config["dslaunch"]["data"]["eval_fraction"] = 0.05;
    config["dslaunch"]["eval_interval"] = 2;
    config.update(precision);
    INFO(name << " on " << slots.size() << " hosts, " << precision.dump());
    const StageRun replicated = run_stage(0, slots, name, config);
    CHECK(std::any_of(replicated.metrics.begin(), replicated.metrics.end(),
                      [](const Json& line) { return line.contains("eval_loss"); }));
    for (const int stage : {1, 2, 3}) {
        INFO("stage " << stage);
        const StageRun sharded = run_stage(stage, slots, name, config);
        check_equal_lines(sharded.metrics, replicated.metrics);
        CHECK(sharded.weights == replicated.weights);
    }
}

const Json kFp32 = Json::object();
const Json kBf16 = {{"bf16", {{"enabled", true}}}};
const Json kFp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 18}, {"hysteresis", 1}}}};

}  // namespace

TEST_CASE("50 steps have the losses of stock PyTorch at ZeRO stages 1, 2 and 3") {
    check_traces({"gpt-tied"}, {{3, 1}}, zero_stage(1));
    check_traces({"convnet"}, {{2, 2}}, zero_stage(2));
    check_traces({"gpt-tied"}, {{2, 1}}, zero_stage(3));
    check_traces({"mixture"}, {{3, 1}}, zero_stage(3));
}

TEST_CASE("50 steps have the losses of stock PyTorch at every ZeRO stage and fixture", "[.long]") {
    for (const int stage : {0, 1, 2, 3})
        check_traces(fixture_names(), {{1, 1}, {2, 1}, {2, 2}, {3, 1}}, zero_stage(stage));
}

TEST_CASE("ZeRO stages have one another's metrics, held-out losses and weights, bit by bit") {
    check_stages_equal("gpt-tied", {2}, kFp32);
    check_stages_equal("convnet", {2, 1}, kFp32);
    check_stages_equal("tied-frozen-unused", {1, 1}, kBf16);
    check_stages_equal("gpt-dropout", {2}, kFp16);
    // The first host keeps no parameters, since there are fewer blocks than hosts.
    check_stages_equal("mlp", {1, 1, 1}, kFp32);
}

TEST_CASE("hosts that hold copies of what their ranks shard have the metrics of stage 0",
          "[matrix]") {
    const Json copies = {{"zero_optimization", {{"mics_shard_size", 2}}}};
    check_stages_equal("gpt-tied", {2, 2}, copies);
    Json half = copies;
    half.update(kBf16);
    if (whole_matrix()) check_stages_equal("gpt", {2, 2}, half);
    // A rank has half of Adam's moments, as evenly as three blocks can be divided. No parameters
    // are sent between hosts.
    const auto last_line = [&](int stage, const Json& more) {
        Json config = fixture_config(fixture_facts("gpt"), 2, 2);
        config.update(more);
        return run_stage(stage, {2, 2}, "gpt", config).metrics.back();
    };
    const auto moments = [](const Json& line) {
        return line.at("memory").at("moments").get<double>();
    };
    const auto sent = [](const Json& line) {
        return line.at("link_bytes").at("sent").get<double>();
    };
    const Json replicated = last_line(0, kFp32), everywhere = last_line(3, kFp32);
    const Json on_hosts = last_line(3, copies);
    CHECK(moments(on_hosts) < 0.7 * moments(replicated));
    CHECK(moments(everywhere) < 0.8 * moments(on_hosts));
    CHECK(sent(on_hosts) == Approx(sent(replicated)).epsilon(0.02));
    CHECK(sent(everywhere) > 1.2 * sent(on_hosts));
    const TemporaryFolder folder;
    Json config = fixture_config(fixture_facts("gpt"), 1, 2);
    config["zero_optimization"] = {{"stage", 3}, {"mics_shard_size", 2}};
    const TrainResult refused =
        train(folder, hosts(folder, {2, 1}), fixture_archive("gpt"), config);
    CHECK(refused.code == 65);
    CHECK(
        refused.err.find("zero_optimization.mics_shard_size: 2 is not possible: of the 3 ranks") !=
        std::string::npos);
}

TEST_CASE("what goes between hosts in fewer bits is as planned, and trains nearly as well",
          "[matrix]") {
    Json config = fixture_config(fixture_facts("gpt"), 2, 6);
    config["gradient_clipping"] = 0.5;
    config.update(kBf16);
    const std::vector<Json> exact = run_stage(3, {2, 2}, "gpt", config).metrics;
    config["zero_optimization"] = {{"zero_quantized_weights", true},
                                   {"zero_quantized_gradients", true},
                                   {"zero_hpz_partition_size", 2}};
    config["comms_logger"] = {{"enabled", true}};
    config["zero_optimization"].update(zero_stage(3));
    const TemporaryFolder folder;
    const TrainResult packed = train_well(folder, hosts(folder, {2, 2}), "gpt", config);
    const auto of = [](const Json& line, const char* kind) {
        return line.at("step_link_bytes").at("by_kind").at(kind);
    };
    for (size_t i = 0; i < exact.size(); ++i) {
        const Json& line = packed.metrics.at(i);
        if (!line.contains("step_link_bytes")) continue;
        for (const char* kind : {"reduce", "gather", "norm"}) {
            INFO("line " << i << ", " << kind);
            CHECK(of(line, kind).at("sent") == of(line, kind).at("planned"));
            CHECK(of(exact[i], kind).at("sent") == of(exact[i], kind).at("planned"));
        }
        // Gradients are sent in 4 bits instead of fp32. Parameters are sent in 8 bits instead of
        // bf16, and once instead of in the forward and the backward of each of two micro steps.
        const auto part = [&](const char* kind) {
            return of(line, kind).at("sent").get<double>() /
                   of(exact[i], kind).at("sent").get<double>();
        };
        CHECK(part("reduce") == Approx(0.13).epsilon(0.1));
        CHECK(part("gather") < 0.53 * 0.34);
        CHECK(line.at("loss").get<double>() ==
              Approx(exact[i].at("loss").get<double>()).margin(0.02));
    }
    CHECK(packed.err.find("between hosts: parameters in 8 bits; gradients in 4 bits; each host "
                          "keeps the parameters that it gathers in a step") != std::string::npos);
    CHECK(packed.err.find("sent by this host in a step: reduce") != std::string::npos);
    CHECK(packed.err.find(" as planned, gather") != std::string::npos);
    CHECK(packed.err.find("algbw GB/s") != std::string::npos);
}

TEST_CASE("auto packs by the measured link and says why; a wrong number of ranks is refused") {
    Json config = fixture_config(fixture_facts("gpt"), 1, 2);
    config["zero_optimization"] = {{"zero_quantized_weights", "auto"},
                                   {"zero_quantized_gradients", "auto"},
                                   {"zero_hpz_partition_size", "auto"}};
    config["zero_optimization"].update(zero_stage(3));
    const TemporaryFolder folder;
    const TrainResult chosen = train_well(folder, hosts(folder, {2, 2}), "gpt", config);
    for (const char* key : {"zero_quantized_weights", "zero_quantized_gradients"})
        CHECK(chosen.err.find(std::string("zero_optimization.") + key + " auto: o") !=
              std::string::npos);
    CHECK(chosen.err.find("GB/s: sending an element takes") != std::string::npos);
    CHECK(chosen.err.find("each host keeps the parameters that it gathers") != std::string::npos);
    for (const char* kind : {"reduce", "gather"}) {
        const Json& of = chosen.metrics.back().at("step_link_bytes").at("by_kind").at(kind);
        CHECK(of.at("sent") == of.at("planned"));
    }
    config["zero_optimization"]["zero_hpz_partition_size"] = 3;
    const TemporaryFolder other;
    const TrainResult refused = train(other, hosts(other, {2, 2}), fixture_archive("gpt"), config);
    CHECK(refused.code == 65);
    CHECK(refused.err.find(
              "zero_optimization.zero_hpz_partition_size: 3 is not possible: of the 4 ranks") !=
          std::string::npos);
}

TEST_CASE("every fixture has the same metrics and weights at every ZeRO stage", "[.long]") {
    for (const std::string& name : fixture_names())
        for (const std::vector<int>& slots : {std::vector<int>{3}, {1, 1}, {2, 1, 2}})
            for (const Json& precision : {kFp32, kBf16, kFp16})
                check_stages_equal(name, slots, precision);
}

TEST_CASE("weights trained in bf16 are written as the fp32 masters") {
    Json config = fixture_config(fixture_facts("gpt"), 1, 2);
    config["bf16"] = {{"enabled", true}};
    const TemporaryFolder folder;
    config["zero_optimization"] = zero_stage(3);
    train_well(folder, hosts(folder, {2, 1}), "gpt", config);
    bool finer = false;
    for (const auto& [name, stored] : read_safetensors(folder.path() + "/out/model.safetensors")) {
        INFO(name);
        CHECK(stored.dtype == "F32");
        // A value rounded to bf16 has no bits in its lower half.
        for (size_t i = 0; i + 4 <= stored.bytes.size(); i += 4)
            finer = finer || stored.bytes[i] != 0 || stored.bytes[i + 1] != 0;
    }
    CHECK(finer);
}

}  // namespace dslaunch::test
