// Runs `dslaunch tune` on real jobs of two ranks: the table, the written config, with which a
// training runs, a trial that fails, Ctrl-C, and the files and processes that are left afterwards.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/process/process_tree.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/train_job.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> tune_command(const TemporaryFolder& folder,
                                      std::vector<std::string> words) {
    std::vector<std::string> all = {"env",
                                    "-C",
                                    folder.path(),
                                    "XDG_STATE_HOME=" + folder.path() + "/state",
                                    "OMP_NUM_THREADS=1",
                                    kDslaunch};
    all.insert(all.end(), words.begin(), words.end());
    return all;
}

ProgramEnd tune_run(const TemporaryFolder& folder, const std::vector<std::string>& words) {
    return run_program(tune_command(folder, words));
}

// Writes the config of a small GPT that two ranks train with 8 rows a step, in micro batches of 2.
// Returns its path.
std::string write_config(const TemporaryFolder& folder, Json more = {}) {
    Json config = fixture_config(fixture_facts("gpt"), 2, 500);
    config["train_micro_batch_size_per_gpu"] = 2;
    for (const auto& [key, value] : more.items()) config[key] = value;
    write_file(folder.path() + "/c.json", config.dump());
    return folder.path() + "/c.json";
}

// Returns true if a process has FOLDER in its command line or its environment.
bool has_process(const TemporaryFolder& folder) {
    const auto names_it = [&](const std::string& path) {
        std::ifstream file(path);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        return text.find(folder.path()) != std::string::npos;
    };
    for (const pid_t pid : launch::all_processes()) {
        const std::string place = fmt::format("/proc/{}/", pid);
        if (names_it(place + "cmdline") || names_it(place + "environ")) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("tune prints a table, writes a config that trains, and leaves nothing else") {
    const TemporaryFolder folder;
    const std::string config = write_config(folder);
    // The stage and recompute are set, so few configs are left; tune tries two of them.
    const ProgramEnd result =
        tune_run(folder, {"tune", "--set", "zero_optimization.stage=0", "--set",
                          "activation_checkpointing.number_checkpoints=0", "--num_gpus", "2",
                          "--device", "cpu", "--config", config, "--minutes", "60", "--trials", "2",
                          "-o", "tuned.json", fixture_archive("gpt")});
    CAPTURE(result.out, result.err);
    REQUIRE(result.code == 0);
    CHECK_THAT(result.out, Catch::Contains("forecast ms") && Catch::Contains("measured ms"));
    CHECK_THAT(result.out, Catch::Contains("micro batch 2 x 2, ZeRO 0"));
    CHECK_THAT(result.out, Catch::Contains("chosen"));
    CHECK_THAT(result.out, Catch::Contains("not tried: "));
    CHECK_THAT(result.err, Catch::Contains("the config is in tuned.json"));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"c.json", "tuned.json"});
    CHECK_FALSE(has_process(folder));
    CHECK(tune_run(folder, {"config", "check", "tuned.json", "--world-size", "2"}).code == 0);
    const Json tuned = Json::parse(folder.read("tuned.json"));
    CHECK(tuned.at("optimizer") == Json::parse(folder.read("c.json")).at("optimizer"));
    const ProgramEnd trained =
        tune_run(folder, {"run", "--num_gpus", "2", "--device", "cpu", "--config", "tuned.json",
                          "--steps", "2", "--no-output", fixture_archive("gpt")});
    CAPTURE(trained.err);
    CHECK(trained.code == 0);
    // tune does not replace a file of the user.
    const ProgramEnd again =
        tune_run(folder, {"tune", "--config", config, "-o", "tuned.json", fixture_archive("gpt")});
    CHECK(again.code == 66);
    CHECK_THAT(again.err, Catch::Contains("--force"));
}

TEST_CASE("a trial that fails is named and passed over, and --autotuning writes as DeepSpeed") {
    const TemporaryFolder folder;
    // There are 192 samples. A run refuses a micro batch of 2048 rows, but a forecast does not
    // notice this.
    Json config = fixture_config(fixture_facts("mlp"), 256, 500);
    config["autotuning"] = {{"enabled", true},
                            {"fast", true},
                            {"tuner_type", "gridsearch"},
                            {"start_profile_step", 2},
                            {"end_profile_step", 3}};
    write_file(folder.path() + "/c.json", config.dump());
    const ProgramEnd tuned =
        tune_run(folder, {"--autotuning", "tune", "--num_gpus", "1", "--device", "cpu", "--config",
                          "c.json", "--set", "activation_checkpointing.number_checkpoints=0",
                          "--set", "zero_optimization.stage=0", fixture_archive("mlp")});
    CAPTURE(tuned.out, tuned.err);
    REQUIRE(tuned.code == 0);
    CHECK_THAT(tuned.out, Catch::Contains("failed: micro batch 2048 x 1") &&
                              Catch::Contains("needs more rows than the file has (192 samples)"));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"autotuning_results", "c.json"});
    const Json best = Json::parse(folder.read("autotuning_results/ds_config_optimal.json"));
    CHECK(best.at("autotuning").at("enabled") == false);
    CHECK(best.value("train_batch_size", 2048) == 2048);
}

TEST_CASE("Ctrl-C keeps the best config so far and says so; a killed search leaves no process") {
    const TemporaryFolder folder;
    const std::string config = write_config(folder);
    const std::vector<std::string> words = {
        "tune", "--num_gpus", "2",         "--device", "cpu",  "--config",
        config, "-o",         "best.yaml", "--tuner",  "grid", fixture_archive("gpt")};
    {
        const TemporaryFolder output;
        JobProcess process(output, tune_command(folder, words));
        REQUIRE(wait_until([&] { return process.err().find("ms a step") != std::string::npos; }));
        process.signal(SIGINT);
        const int code = process.wait();
        CAPTURE(process.err());
        CHECK(code == 76);
        CHECK_THAT(process.err(), Catch::Contains("interrupted; the best config so far"));
        CHECK(names_in(folder.path()) == std::vector<std::string>{"best.yaml", "c.json"});
        CHECK(tune_run(folder, {"config", "check", "best.yaml", "--world-size", "2"}).code == 0);
    }
    fs::remove(folder.path() + "/best.yaml");
    const TemporaryFolder output;
    JobProcess process(output, tune_command(folder, words));
    REQUIRE(wait_until([&] { return process.err().find("ms a step") != std::string::npos; }));
    process.signal(SIGKILL);
    process.wait();
    CHECK(wait_until([&] { return !has_process(folder); }));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"c.json"});
}
