// compression_training, compared with stock PyTorch and the compressed layers of DeepSpeed 0.19.6
// (compression_reference.json, written by compression_reference.py): 20 steps have its losses. The
// bits do not depend on ZeRO stage, ranks' shards, recompute, stages of a pipeline or a resume, and
// the weights that a run writes compute the loss that it ended with.
#include <torch/csrc/jit/serialization/import.h>

#include "parity/fixture_runs.h"

namespace dslaunch::test {
namespace {

const Json& reference() {
    static const Json made = Json::parse(content_of(
        source_dir() + std::string("/tests/parity/compression/compression_reference.json")));
    return made;
}

const Json& run_about(const std::string& about) {
    for (const Json& run : reference().at("runs"))
        if (run.at("about") == about) return run;
    FAIL("no run about " << about);
    return reference();
}

Json compressed_config(const Json& run, int64_t steps = 20, int64_t accumulation = 1) {
    Json config =
        fixture_config(fixture_facts(run.at("model").get<std::string>()), accumulation, steps);
    config["compression_training"] = run.at("config");
    return config;
}

// The distance that the loss of equal weights may have from the reference.
constexpr double kOfEqualWeights = 2e-5;

// Returns the distance that a loss may have from the reference. Other kernels add in another order,
// which changes the last bits of a weight. Where a weight is between two values of its grid, it is
// then rounded to the other one: the fewer bits, the larger the step.
double bound_of(const std::string& about, size_t step) {
    if (step == 0) return kOfEqualWeights;
    if (about.find("convolution") != std::string::npos || about == "channels") return 5e-2;
    return step < 3 ? kOfEqualWeights : 1e-2;
}

// Returns the losses of RUN's model without compression, in PyTorch.
std::vector<double> uncompressed(const Json& run) {
    const Json facts = fixture_facts(run.at("model").get<std::string>());
    for (const Json& one : facts.at("training").at("runs"))
        if (one.at("world_size") == run.at("world_size") && one.at("accumulation") == 1)
            return one.at("losses").get<std::vector<double>>();
    FAIL("no reference without compression");
    return {};
}

// Trains as RUN says on WORLD_SIZE ranks, with CHANGE in the config. Returns losses and weights.
std::pair<std::vector<double>, Weights> bits_of(const Json& run, int world_size,
                                                const Json& change) {
    const TemporaryFolder folder;
    Json config = compressed_config(run, 8, 2);
    config.merge_patch(change);
    const TrainResult trained =
        train_well(folder, ranks(world_size), run.at("model").get<std::string>(), config);
    return {trained.losses(), read_safetensors(folder.path() + "/out/model.safetensors")};
}

}  // namespace

TEST_CASE("compressed training has the losses of DeepSpeed's compressed layers in PyTorch") {
    double largest = 0;
    for (const Json& run : reference().at("runs")) {
        const std::string about = run.at("about");
        const TemporaryFolder folder;
        const TrainResult trained =
            train_well(folder, ranks(run.at("world_size").get<int>()),
                       run.at("model").get<std::string>(), compressed_config(run));
        const std::vector<double> losses = trained.losses();
        const auto expected = run.at("losses").get<std::vector<double>>();
        REQUIRE(losses.size() == expected.size());
        double here = 0;
        for (size_t step = 0; step < losses.size(); ++step) {
            INFO(about << ", step " << step + 1);
            CHECK(std::abs(losses[step] - expected[step]) < bound_of(about, step));
            here = std::max(here, std::abs(losses[step] - expected[step]));
        }
        std::printf("%s: losses differ from PyTorch's by at most %.2e\n", about.c_str(), here);
        largest = std::max(largest, here);
    }
    CHECK(reference().at("runs").size() == 14);
}

TEST_CASE("with fixed weights, each step has the loss of DeepSpeed's compressed layers") {
    int compared = 0;
    for (const Json& run : reference().at("runs")) {
        if (!run.contains("fixed_losses")) continue;
        const std::string about = run.at("about");
        const TemporaryFolder folder;
        Json config = compressed_config(run);
        config["optimizer"]["params"]["lr"] = 0;
        const TrainResult trained = train_well(folder, ranks(run.at("world_size").get<int>()),
                                               run.at("model").get<std::string>(), config);
        const std::vector<double> losses = trained.losses();
        const auto expected = run.at("fixed_losses").get<std::vector<double>>();
        INFO(about);
        CHECK(largest_difference(losses, expected) < kOfEqualWeights);
        std::printf("%s, fixed weights: losses differ from PyTorch's by at most %.2e\n",
                    about.c_str(), largest_difference(losses, expected));
        ++compared;
    }
    CHECK(compared == 8);
}

TEST_CASE("the bounds of the comparison refuse the losses of uncompressed runs") {
    for (const Json& run : reference().at("runs")) {
        const std::string about = run.at("about");
        const std::vector<double> plain = uncompressed(run);
        const auto expected = run.at("losses").get<std::vector<double>>();
        bool is_seen = false;
        for (size_t step = 0; step < expected.size(); ++step)
            is_seen |= std::abs(plain[step] - expected[step]) >= bound_of(about, step);
        INFO(about);
        CHECK(is_seen);
    }
}

TEST_CASE("compressed training has the same bits at every ZeRO stage and with recompute") {
    for (const char* about : {"8 to 4 bits", "masks of scores", "activations in a range"})
        for (const int world_size : {1, 2, 3}) {
            const Json& run = run_about(about);
            const Json by_micro_step = {
                {"dslaunch", {{"communication", {{"reduce", "micro_step"}}}}}};
            const auto [losses, weights] = bits_of(run, world_size, by_micro_step);
            for (const Json& change :
                 {Json{{"zero_optimization", {{"stage", 3}}}},
                  Json{{"zero_optimization", {{"stage", 2}}},
                       {"activation_checkpointing", {{"number_checkpoints", 2}}}}}) {
                INFO(about << " on " << world_size << " ranks with " << change.dump());
                const auto [found, found_weights] = bits_of(run, world_size, change);
                CHECK(found == losses);
                check_equal_weights(found_weights, weights);
            }
        }
}

TEST_CASE("compressed training has the same bits in two stages of a pipeline") {
    for (const char* about : {"8 to 4 bits", "masks of scores", "masks of the first weights"}) {
        const Json& run = run_about(about);
        const Json by_micro_step = {{"dslaunch", {{"communication", {{"reduce", "micro_step"}}}}}};
        const auto [losses, weights] = bits_of(run, 1, by_micro_step);
        for (const char* schedule : {"1f1b", "zb-h1"}) {
            INFO(about << " with " << schedule);
            Json change = by_micro_step;
            change["dslaunch"]["pipeline"] = {{"stages", 2}, {"schedule", schedule}};
            const auto [found, found_weights] = bits_of(run, 2, change);
            CHECK(found == losses);
            check_equal_weights(found_weights, weights);
        }
    }
}

TEST_CASE("compressed training continues from a checkpoint with the same bits") {
    for (const char* about : {"8 to 4 bits", "masks of scores", "masks of the first weights",
                              "activations in a range"}) {
        INFO(about);
        const Json& run = run_about(about);
        const int world_size = run.at("world_size");
        const auto name = run.at("model").get<std::string>();
        const TemporaryFolder whole_folder, folder;
        const TrainResult whole =
            train_well(whole_folder, ranks(world_size), name, compressed_config(run, 9));
        const TrainResult begun =
            train_well(folder, ranks(world_size), name, compressed_config(run, 5));
        std::vector<std::string> resumes = ranks(world_size);
        resumes.emplace_back("--resume");
        const TrainResult ended = train_well(folder, resumes, name, compressed_config(run, 9));
        CHECK(ended.losses() == whole.losses());
        check_equal_weights(read_safetensors(folder.path() + "/out/model.safetensors"),
                            read_safetensors(whole_folder.path() + "/out/model.safetensors"));
    }
}

TEST_CASE("the weights that a compressed run writes are on their grid, and masked") {
    const TemporaryFolder folder;
    Json config = compressed_config(run_about("three values"));
    config["compression_training"]["row_pruning"] = {
        {"shared_parameters", {{"enabled", true}, {"schedule_offset", 0}, {"method", "topk"}}},
        {"different_groups", {{"r", {{"params", {{"dense_ratio", 0.5}}}, {"modules", {"fc"}}}}}}};
    train_well(folder, ranks(2), "gpt", config);
    const Weights weights = read_safetensors(folder.path() + "/out/model.safetensors");
    CHECK(weights.count("blocks.0.fc.row_mask_scores") == 0);
    const std::vector<float> proj = floats_of(weights.at("blocks.1.proj.weight"));
    CHECK(std::set<float>(proj.begin(), proj.end()).size() == 3);
    const std::vector<float> free = floats_of(weights.at("wte.weight"));
    CHECK(std::set<float>(free.begin(), free.end()).size() > 100);
    const Stored& stored = weights.at("blocks.0.fc.weight");
    const std::vector<float> masked = floats_of(stored);
    const std::vector<float> bias = floats_of(weights.at("blocks.0.fc.bias"));
    const auto columns = static_cast<size_t>(stored.shape[1]);
    int64_t kept = 0;
    for (size_t row = 0; row < bias.size(); ++row) {
        const bool any =
            std::any_of(masked.begin() + static_cast<std::ptrdiff_t>(row * columns),
                        masked.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns),
                        [](float value) { return value != 0; });
        kept += any ? 1 : 0;
        if (!any) CHECK(bias[row] == 0);
    }
    CHECK(kept == std::ssize(bias) / 2);
}

TEST_CASE("a compressed run's written weights have its held-out loss without the section") {
    const Json& run = run_about("8 to 4 bits");
    const TemporaryFolder folder, plain;
    Json config = compressed_config(run);
    config["dslaunch"]["data"]["eval_fraction"] = 0.25;
    const TrainResult trained = train_well(folder, ranks(2), "gpt", config);
    config.erase("compression_training");
    config["dslaunch"]["steps"] = 1;
    config["dslaunch"]["eval_interval"] = 1;
    const TrainResult evaluated = train(plain, ranks(2), folder.path() + "/out/model.pt", config);
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK(evaluated.values_of("eval_loss").front() ==
          Approx(trained.values_of("eval_loss").back()).epsilon(1e-6));
}

TEST_CASE("a compressed run in bf16 writes the weights that its layers read") {
    const TemporaryFolder folder, plain;
    Json config = compressed_config(run_about("8 to 4 bits"));
    config["compression_training"]["sparse_pruning"] = {
        {"shared_parameters", {{"enabled", true}, {"schedule_offset", 0}, {"method", "topk"}}},
        {"different_groups",
         {{"s", {{"params", {{"dense_ratio", 0.3}}}, {"modules", {"fc", "out$"}}}}}}};
    config["bf16"]["enabled"] = true;
    config["dslaunch"]["data"]["eval_fraction"] = 0.25;
    const TrainResult trained = train_well(folder, ranks(2), "gpt", config);
    CHECK(trained.err.find("12 in 5 bits") != std::string::npos);
    config.erase("compression_training");
    config["dslaunch"]["steps"] = 1;
    config["dslaunch"]["eval_interval"] = 1;
    config["optimizer"]["params"]["lr"] = 0;
    const TrainResult evaluated = train(plain, ranks(2), folder.path() + "/out/model.pt", config);
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK(evaluated.values_of("eval_loss").front() == trained.values_of("eval_loss").back());
}

TEST_CASE("masks that the run never used are not cut, and a run says what its weights are") {
    const TemporaryFolder folder;
    Json config = fixture_config(fixture_facts("gpt"), 1, 4);
    config["compression_training"]["row_pruning"] = {
        {"shared_parameters", {{"enabled", true}, {"method", "topk"}}},
        {"different_groups",
         {{"r",
           {{"params", {{"dense_ratio", 0.3}}},
            {"modules", {"fc"}},
            {"related_modules", Json::array({Json::array({"out$"})})}}}}}};
    const TrainResult trained = train_well(folder, ranks(2), "gpt", config);
    INFO(trained.err);
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/out/smaller"));
    CHECK(trained.err.find("not written, because pruning begins after 1000 updates, and the run "
                           "ended after 4 updates") != std::string::npos);
    CHECK(trained.err.find("compressed weights after 4 updates: 6 not masked yet (schedule_offset "
                           "1000)") != std::string::npos);
}

TEST_CASE("a pipeline whose first stage trains nothing writes weights in the last bits") {
    const Json& run = run_about("8 to 4 bits");
    const TemporaryFolder folder, whole;
    torch::jit::Module module = torch::jit::load(fixture_archive("gpt"));
    for (const auto& parameter : module.named_parameters())
        if (!parameter.name.starts_with("blocks.2.") && !parameter.name.starts_with("head") &&
            !parameter.name.starts_with("ln_f"))
            parameter.value.set_requires_grad(false);
    const std::string model = folder.path() + "/frozen.pt";
    module.save(model);
    Json config = compressed_config(run, 12);
    config["compression_training"]["weight_quantization"]["shared_parameters"]["schedule_offset"] =
        2;
    const TrainResult alone = train(whole, ranks(1), model, config);
    INFO(alone.err);
    REQUIRE(alone.code == 0);
    config["dslaunch"]["pipeline"] = {{"stages", 2}, {"schedule", "1f1b"}};
    const TrainResult trained = train(folder, ranks(2), model, config);
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    check_equal_weights(read_safetensors(folder.path() + "/out/model.safetensors"),
                        read_safetensors(whole.path() + "/out/model.safetensors"));
}

TEST_CASE("a run with masks of the first weights resumes with the same ones only") {
    const Json& run = run_about("masks of the first weights");
    const TemporaryFolder folder;
    train_well(folder, ranks(1), "gpt", compressed_config(run, 3));
    std::vector<std::string> resumes = ranks(1);
    resumes.emplace_back("--resume");
    const auto refusal = [&](const Json& config, const std::string& model) {
        const TrainResult refused = train(folder, resumes, model, config);
        CHECK(refused.code != 0);
        return refused.err;
    };
    const std::string trained = folder.path() + "/trained.pt";
    std::filesystem::copy(folder.path() + "/out/model.pt", trained);
    const std::string other = "trained with masks that differ";
    CHECK(refusal(compressed_config(run, 6), trained).find(other) != std::string::npos);
    Json config = compressed_config(run, 6);
    config["compression_training"]["sparse_pruning"]["different_groups"]["g1"]["params"]
          ["dense_ratio"] = 0.31;
    CHECK(refusal(config, fixture_archive("gpt")).find(other) != std::string::npos);
    config.erase("compression_training");
    CHECK(refusal(config, fixture_archive("gpt")).find("but the config of this run has no masks") !=
          std::string::npos);
    const TemporaryFolder plain;
    train_well(plain, ranks(1), "gpt", fixture_config(fixture_facts("gpt"), 1, 3));
    const TrainResult refused =
        train(plain, resumes, fixture_archive("gpt"), compressed_config(run, 6));
    CHECK(refused.code != 0);
    CHECK(refused.err.find("the run that saved this checkpoint had no masks") != std::string::npos);
}

TEST_CASE("pruned rows are left out of smaller weights, which have the same held-out loss") {
    const TemporaryFolder folder, plain;
    Json config = fixture_config(fixture_facts("gpt"), 1, 4);
    config["dslaunch"]["data"]["eval_fraction"] = 0.25;
    config["compression_training"]["row_pruning"] = {
        {"shared_parameters", {{"enabled", true}, {"schedule_offset", 0}, {"method", "topk"}}},
        {"different_groups",
         {{"r",
           {{"params", {{"dense_ratio", 0.3}}},
            {"modules", {"fc"}},
            {"related_modules", Json::array({Json::array({"out$"})})}}}}}};
    const TrainResult trained = train_well(folder, ranks(2), "gpt", config);
    const std::string smaller = folder.path() + "/out/smaller";
    const Weights weights = read_safetensors(smaller + "/model.safetensors");
    using Shape = std::vector<int64_t>;
    CHECK(weights.at("blocks.2.fc.weight").shape == Shape{39, 32});  // the ceiling of 0.3 x 128
    CHECK(weights.at("blocks.2.fc.bias").shape == Shape{39});
    CHECK(weights.at("blocks.2.out.weight").shape == Shape{32, 39});
    CHECK(weights.at("blocks.2.out.bias").shape == Shape{32});
    CHECK(weights.at("head.weight").shape == Shape{128, 32});
    const Weights whole = read_safetensors(folder.path() + "/out/model.safetensors");
    CHECK(whole.at("blocks.2.fc.weight").shape == Shape{128, 32});
    config.erase("compression_training");
    config["dslaunch"]["steps"] = 1;
    config["dslaunch"]["eval_interval"] = 1;
    const TrainResult evaluated = train(plain, ranks(2), smaller + "/model.pt", config);
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK(evaluated.values_of("eval_loss").front() ==
          Approx(trained.values_of("eval_loss").back()).epsilon(1e-6));
}

TEST_CASE("a student with its teacher's layers learns from it, with the same bits at every stage") {
    struct Run {
        int world_size = 1;
        int64_t steps = 6;
        int stage = 0;
        double weight = 0.5;
        bool resumes = false;
        int stages = 1;
    };
    const auto run = [](const Run& made, const TemporaryFolder& folder) {
        Json config = fixture_config(fixture_facts("gpt-tied"), 1, made.steps);
        Json& reduction = config["compression_training"]["layer_reduction"];
        reduction["enabled"] = true;
        reduction["keep_number_layer"] = 2;
        reduction["module_name_prefix"] = "blocks";
        reduction["teacher_layer"] = std::vector<int>{0, 2};
        reduction["other_module_name"] = std::vector<std::string>{"wte", "wpe", "ln_f"};
        Json& distill = config["dslaunch"]["distill"];
        distill["teacher"] = fixture_archive("gpt");
        distill["temperature"] = 2;
        distill["weight"] = made.weight;
        config["zero_optimization"]["stage"] = made.stage;
        if (made.stages > 1) config["dslaunch"]["pipeline"] = {{"stages", made.stages}};
        config["dslaunch"]["communication"]["reduce"] = "micro_step";
        std::vector<std::string> where = ranks(made.world_size * made.stages);
        if (made.resumes) where.emplace_back("--resume");
        return train_well(folder, where, "gpt-tied", config).losses();
    };
    for (const int world_size : {1, 2}) {
        const TemporaryFolder first, second, third;
        const std::vector<double> losses = run({world_size}, first);
        CHECK(run({world_size, 6, 3}, second) == losses);
        CHECK(run({world_size, 3}, third).size() == 3);
        CHECK(run({world_size, 6, 0, 0.5, true}, third) == losses);
        const Weights weights = read_safetensors(first.path() + "/out/model.safetensors");
        CHECK(weights.count("blocks.1.fc.weight") == 1);
        CHECK(weights.count("teacher.wte.weight") == 0);
        check_equal_weights(read_safetensors(second.path() + "/out/model.safetensors"), weights);
    }
    // Two stages of a pipeline, of which each needs the teacher, have the same losses.
    const TemporaryFolder one_stage, two_stages;
    Run in_stages{1, 4};
    in_stages.stages = 2;
    CHECK(run(in_stages, two_stages) == run({1, 4}, one_stage));
    // With no part in the loss, the teacher only gives its layers.
    const TemporaryFolder alone, both;
    CHECK(run({1, 1, 0, 0}, alone).front() != run({1, 1}, both).front());
}

TEST_CASE("what compression cannot be combined with is refused by name") {
    const TemporaryFolder folder;
    Json config = compressed_config(run_about("8 bits"));
    config["dslaunch"]["lora"] = {{"r", 2}};
    const TrainResult refused = train(folder, ranks(1), fixture_archive("gpt"), config);
    CHECK(refused.code != 0);
    CHECK(refused.err.find("compression_training: cannot be combined with dslaunch.lora") !=
          std::string::npos);
}

}  // namespace dslaunch::test
