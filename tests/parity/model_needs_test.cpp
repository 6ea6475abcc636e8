// The things that a model needs in addition to its file. If a library of operators that is not part
// of LibTorch is missing, the message names it. The library is loaded if --op-library or the config
// names it, but not because a file that came with the model names it. If a batch has other sizes
// than a program was exported for, the message names these sizes.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/jit/api/module.h>

#include "fixture_runs.h"
#include "graph/archive/op_library.h"
#include "support/script_module.h"
#include "support/script_names.h"

namespace dslaunch::test {
namespace {

const std::string kLibrary = std::string(binary_dir()) + "/libdsl_test_operators.so";

// Writes a classifier of digits that halves its logits with the library's operator.
void write_model(const std::string& path) {
    load_op_libraries({kLibrary});
    torch::jit::Module module("Classifier");
    module.register_parameter("w", wave({10, 64}, 1).set_requires_grad(true), false);
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n    return halve(torch.linear(x, self.w))\n",
        std::make_shared<ScriptNames>(ScriptNames::Names{
            {"halve", std::make_shared<torch::jit::BuiltinFunction>(
                          c10::Symbol::fromQualString("dsl_test::halve"), std::nullopt)}}));
    module.save(path);
}

}  // namespace

TEST_CASE("a library of operators is loaded before the model, on every rank") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model.pt";
    write_model(model);
    Json config = fixture_config(fixture_facts("mlp"), 1, 3);

    // Without the library, the message names the operator. A file that is not such a library is
    // refused.
    TrainResult result = train(folder, ranks(2), model, config);
    CHECK(result.code == 66);
    CHECK_THAT(result.err, Catch::Contains("LibTorch has no operator dsl_test::halve") &&
                               Catch::Contains("--op-library FILE.so"));
    std::vector<std::string> where = ranks(2);
    where.insert(where.end(), {"--op-library", folder.path() + "/config.json"});
    result = train(folder, where, model, config);
    CHECK(result.code == 66);
    CHECK_THAT(result.err, Catch::Contains("config.json: ") && Catch::Contains("TORCH_LIBRARY"));

    // Two libraries with the same operators are refused.
    const std::string again = folder.path() + "/again.so";
    std::filesystem::copy(kLibrary, again);
    const ProgramEnd twice = run_dslaunch(
        folder, {"model", "show", model, "--op-library", kLibrary, "--op-library", again});
    CHECK(twice.code == 66);
    CHECK_THAT(twice.err, Catch::Contains("again.so: Only a single TORCH_LIBRARY"));

    // With the library, the model trains on two hosts, and can be verified, planned and shown.
    where = hosts(folder, {1, 1});
    where.insert(where.end(), {"--op-library", kLibrary});
    result = train(folder, where, model, config);
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(result.losses().size() == 3);
    const std::string path = folder.path() + "/config.json";
    for (const char* role : {"plan", "verify"}) {
        const ProgramEnd ran =
            run_dslaunch(folder, {role, model, "--config", path, "--op-library", kLibrary});
        INFO(role << ran.err);
        CHECK(ran.code == 0);
    }
    CHECK(run_dslaunch(folder, {"model", "show", model, "--op-library", kLibrary}).code == 0);

    // The config names the library, by a path relative to the config's own folder.
    const TemporaryFolder other;
    std::filesystem::copy(kLibrary, other.path() + "/operators.so");
    config["dslaunch"]["op_libraries"] = {"operators.so"};
    result = train(other, ranks(2), model, config);
    INFO(result.err);
    CHECK(result.code == 0);
}

TEST_CASE("a config that came with the model may not name a library") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model.pt";
    write_model(model);
    Json config = fixture_config(fixture_facts("mlp"), 1, 3);
    config["dslaunch"]["op_libraries"] = kLibrary;
    write_file(folder.path() + "/ds_config.json", config.dump());
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{model, "--num_gpus", "1"}, {"plan", model}}) {
        const ProgramEnd ran = run_dslaunch(folder, words);
        INFO(ran.err);
        CHECK(ran.code == 65);
        CHECK_THAT(ran.err, Catch::Contains("would be loaded as code"));
    }
    // A user who names the config file has thereby named the library.
    CHECK(
        run_dslaunch(folder, {"plan", model, "--config", folder.path() + "/ds_config.json"}).code ==
        0);
}

TEST_CASE("a model that opens files is refused by whatever reads it, and trusted by a flag") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model.pt", victim = folder.path() + "/victim";
    const std::string content(256, 'v');
    write_file(victim, content);
    torch::jit::Module module("Classifier");
    module.register_parameter("w", wave({10, 64}, 1).set_requires_grad(true), false);
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    extra = torch.from_file(\"" +
        victim +
        "\", True, 64).fill_(0.0).sum()\n"
        "    return torch.linear(x, self.w) + extra\n");
    module.save(model);
    const Json config = fixture_config(fixture_facts("mlp"), 1, 2);
    const std::string path = folder.path() + "/config.json";
    write_file(path, config.dump());
    write_file(folder.path() + "/adapter_config.json", "{}");
    const std::vector<std::vector<std::string>> commands = {
        {model, "--num_gpus", "1", "--config", path},
        {"verify", model, "--config", path},
        {"model", "show", model},
        {"model", "merge", model, folder.path(), "-o", folder.path() + "/merged"},
        {"generate", model, "--prompt-ids", "1", "--as", "ids"},
        {"plan", model, "--config", path}};
    for (const std::vector<std::string>& words : commands) {
        const ProgramEnd ran = run_dslaunch(folder, words);
        INFO(words[0] << ran.err);
        CHECK(ran.code == 66);
        CHECK_THAT(ran.err,
                   Catch::Contains("uses aten::from_file") && Catch::Contains("--trust-model"));
        CHECK(content_of(victim) == content);
    }
    std::vector<std::string> trusted = commands.back();
    trusted.push_back("--trust-model");
    const ProgramEnd ran = run_dslaunch(folder, trusted);
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK(content_of(victim) != content);
}

TEST_CASE("a program that was exported for other sizes says for which, and what to do") {
    const TemporaryFolder folder;
    const std::string model = fixture_archive("exported-llama");
    const ProgramEnd longer = run_dslaunch(folder, {"plan", model, "--context", "24"});
    CHECK(longer.code == 66);
    CHECK_THAT(longer.err,
               Catch::Contains("the program was exported for 32 elements in dimension 1 of "
                               "`input_ids`, and the batch has 24: use data of that size"));
    const ProgramEnd more = run_dslaunch(
        folder, {"plan", model, "--context", "32", "--set", "train_micro_batch_size_per_gpu=5"});
    INFO(more.err);
    CHECK(more.code == 0);  // the number of rows is not fixed
}

TEST_CASE("plan --lr of a model of rows needs no data, but for epochs") {
    const TemporaryFolder folder;
    const auto rates = [&](std::vector<std::string> more) {
        std::vector<std::string> words = {"plan",  fixture_path("writes/counted.script.pt"),
                                          "--lr",  "--json",
                                          "--set", "train_batch_size=4",
                                          "--set", "optimizer.params.lr=0.5"};
        words.insert(words.end(), more.begin(), more.end());
        return run_dslaunch(folder, words);
    };
    const auto count_of = [](const ProgramEnd& ran) {
        INFO(ran.err);
        REQUIRE(ran.code == 0);
        const Json steps = Json::parse(ran.out).at("steps");
        for (size_t i = 0; i < steps.size(); ++i)
            CHECK(steps[i] == Json({{"step", i + 1}, {"lr", 0.5}}));
        return steps.size();
    };
    CHECK(count_of(rates({"--set", "dslaunch.steps=3"})) == 3);
    // 16 rows are 4 steps of 4 rows.
    const std::vector<std::string> epochs = {"--set", "dslaunch.epochs=2"};
    std::vector<std::string> with_data = epochs;
    with_data.insert(with_data.end(), {"--data", fixture_path("writes/rows.safetensors")});
    CHECK(count_of(rates(with_data)) == 8);
    const ProgramEnd without = rates(epochs);
    CHECK(without.code == 64);
    CHECK_THAT(without.err, Catch::Contains("a file of training data (--data)"));
    const ProgramEnd endless = rates({});
    CHECK(endless.code == 64);
    CHECK_THAT(endless.err, Catch::Contains("--set dslaunch.steps=N"));
}

}  // namespace dslaunch::test
