#include "launcher/run/own_output.h"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launch/metrics/metrics_file.h"
#include "launcher/jobs/next_command.h"
#include "launcher/options/parse_run.h"
#include "storage/checkpoint/file_tree.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/typed_line.h"

namespace dslaunch::launcher {
namespace {

using test::TemporaryFolder;
using test::write_file;
using Words = std::vector<std::string>;

class ModelFolder : public TemporaryFolder {
  public:
    ModelFolder() {
        std::filesystem::copy_file(test::fixture_path("models/mlp.pt"), path() + "/train.pt");
    }
};

// Writes the files that job ID has in the folder RUN before its first step.
void begin_job(const std::string& run, const std::string& id) {
    std::filesystem::create_directories(run + "/logs");
    write_file(run + "/metrics.jsonl", "");
    write_file(run + "/run.json", R"({"job_id": ")" + id + R"("})");
}

bool exists(const TemporaryFolder& folder, const std::string& name) {
    return std::filesystem::exists(folder.path() + "/" + name);
}

}  // namespace

TEST_CASE("the name of a run is the model's, made harmless, and a date that sorts") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() + "/Qwen2.5-0.5B");
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    constexpr std::time_t kStart = 1'796'000'461;
    const std::string date = "20261130-010101";
    const std::pair<const char*, const char*> rows[] = {
        {"train.pt", "train"},
        {"a/b/train.pt2", "train"},
        {"Qwen2.5-0.5B", "Qwen2.5-0.5B"},
        {"Qwen2.5-0.5B/", "Qwen2.5-0.5B"},
        {"./Qwen2.5-0.5B/.", "Qwen2.5-0.5B"},
        {"../x.y.pt", "x.y"},
        {"my model (2).pt", "my_model_2_"},
        {"--help.pt", "help"},
        {"..pt", "model"},
        {"\xe6\xa8\xa1\xe5\x9e\x8b.pt", "model"},
        {"a;rm -rf $HOME.pt", "a_rm_-rf_HOME"},
    };
    for (const auto& [target, name] : rows) {
        INFO(target);
        CHECK(own_output_name(target, folder.path(), kStart) == std::string(name) + "-" + date);
    }
    CHECK(own_output_name(std::string(300, 'x') + ".pt", folder.path(), kStart).size() < 100);
    CHECK(own_output_name("a.pt", "", kStart) < own_output_name("a.pt", "", kStart + 1));
}

TEST_CASE("only a training without --output gets a folder of its own") {
    const ModelFolder folder;
    const std::string model = folder.path() + "/train.pt";
    CHECK(needs_own_output(test::typed_options(model)));
    CHECK_FALSE(needs_own_output(test::typed_options(model + " -o x")));
    CHECK_FALSE(needs_own_output(test::typed_options(model + " --no-output")));
    CHECK_FALSE(needs_own_output(test::typed_options("train.py")));
    CHECK_FALSE(needs_own_output(test::typed_options("sh -c true")));
    CHECK_FALSE(needs_own_output(parse_run_options(Words{model}, /*verify=*/true)));
    CHECK_FALSE(needs_own_output(parse_role_options(Words{"generate", model, "--num_gpus", "2"})));
    CHECK_THAT(
        test::error_of(ExitCode::kUsage, [] { test::typed_options("m.pt --no-output -o x"); }),
        Catch::Contains("--no-output and --output cannot be used together"));
}

TEST_CASE("jobs that begin in one second get folders of their own") {
    const ModelFolder folder;
    std::set<std::string> names;
    std::vector<std::unique_ptr<OwnOutput>> held;
    for (int i = 0; i < 20; ++i) {
        RunOptions options = test::typed_options("train.pt");
        held.push_back(std::make_unique<OwnOutput>(options, folder.path()));
        CHECK(held.back()->is_made());
        CHECK(exists(folder, options.output));
        names.insert(options.output);
    }
    CHECK(names.size() == 20);
    while (!held.empty()) held.pop_back();  // the first one has made the folder that contains all
    CHECK_FALSE(exists(folder, "runs"));
}

TEST_CASE("a dry run names the folder and makes none; so does a model that is not there") {
    const ModelFolder folder;
    for (const char* line : {"train.pt --dry-run", "other.pt"}) {
        RunOptions options = test::typed_options(line);
        const OwnOutput output(options, folder.path());
        CHECK(options.output.starts_with("runs/"));
        CHECK_FALSE(output.is_made());
        CHECK_FALSE(exists(folder, "runs"));
    }
}

TEST_CASE("a job that trained no step leaves nothing but the logs of a crash") {
    struct Row {
        const char* file;
        const char* content;
        int code;
        bool stays;
    };
    const Row rows[] = {
        {"metrics.jsonl", "", 66, false},
        {"metrics.jsonl", "{\"step\": 0, \"eval_loss\": 5.5}\n", 65, false},
        {"tensorboard/events", "a", 66, false},
        {"metrics.jsonl", "{\"step\": 1, \"loss\": 5.5}\n", 66, true},
        {"logs/rank-0.log", "a\n", 76, false},
        {"logs/rank-0.log", "a\n", 71, false},
        {"logs/rank-0.log", "Segmentation fault\n", 68, true},
        {"logs/rank-0.log", "a\n", 69, true},
        {"checkpoints/.lock", "", 73, false},
        {"checkpoints/step-3/manifest.json", "{}", 73, true},
        {"model.safetensors", "x", 76, true},
        {"mine.txt", "somebody else's", 66, true},
    };
    for (const Row& row : rows) {
        INFO(row.file << " " << row.code);
        const ModelFolder folder;
        RunOptions options = test::typed_options("train.pt");
        {
            OwnOutput output(options, folder.path());
            output.set_job("a");
            begin_job(folder.path() + "/" + options.output, "a");
            const std::string path = folder.path() + "/" + options.output + "/" + row.file;
            std::filesystem::create_directories(std::filesystem::path(path).parent_path());
            write_file(path, row.content);
            output.end(row.code);
        }
        CHECK(exists(folder, options.output) == row.stays);
        CHECK(exists(folder, "runs") == row.stays);
    }
}

TEST_CASE("a folder that --output names goes with a refused job only if that job has made it") {
    const ModelFolder folder;
    for (const bool is_new : {true, false})
        for (const int code : {66, 76, 0}) {
            INFO(is_new << " " << code);
            const std::string run = folder.path() + "/run";
            std::filesystem::remove_all(run);
            if (!is_new) std::filesystem::create_directories(run);
            RunOptions options = test::typed_options("train.pt -o run");
            {
                OwnOutput output(options, folder.path());
                CHECK_FALSE(output.is_made());
                CHECK(exists(folder, "run"));
                output.set_job("a");
                begin_job(run, "a");
                output.end(code);
            }
            CHECK(options.output == "run");
            CHECK(exists(folder, "run/run.json") == (!is_new || code != 66));
        }
}

TEST_CASE("a refused job leaves what another job has begun in the folder that it made") {
    for (const char* line : {"train.pt -o run", "train.pt"})
        for (const int code : {73, 66, 0}) {  // 0: an exception ends the job
            const ModelFolder folder;
            RunOptions options = test::typed_options(line);
            auto refused = std::make_unique<OwnOutput>(options, folder.path());
            refused->set_job("a");
            const std::string run = folder.path() + "/" + options.output;
            begin_job(run, "b");
            const auto other = std::make_unique<launch::MetricsFile>(run);
            std::filesystem::remove(run + "/run.json");  // b has started no rank yet
            if (code != 0) refused->end(code);
            refused.reset();
            INFO(line << " " << code);
            CHECK(exists(folder, options.output + "/logs"));
            CHECK(exists(folder, options.output + "/metrics.jsonl"));
        }
}

TEST_CASE("a refused job leaves the files of a job that has ended or saves in its folder") {
    for (const bool saves : {true, false}) {
        const ModelFolder folder;
        RunOptions options = test::typed_options("train.pt -o run");
        auto refused = std::make_unique<OwnOutput>(options, folder.path());
        refused->set_job("a");
        const std::string run = folder.path() + "/run";
        begin_job(run, saves ? "a" : "b");
        std::filesystem::create_directories(run + "/checkpoints");
        write_file(run + "/logs/rank-0.log", "Segmentation fault\n");
        const auto tree = storage::make_disk_tree();
        std::unique_ptr<storage::FileLock> claim;
        if (saves) claim = tree->lock(run + "/checkpoints/.lock", "b");
        refused->end(73);
        refused.reset();
        INFO(saves);
        CHECK(exists(folder, "run/logs/rank-0.log"));
        CHECK(exists(folder, "run/run.json"));
        CHECK(exists(folder, "run/checkpoints"));
    }
}

TEST_CASE("the folders above --output go with a refused job that has made them") {
    const ModelFolder folder;
    std::filesystem::create_directories(folder.path() + "/there");
    for (const char* place : {"new/a/b", "there/a/b", "new/a/"}) {
        INFO(place);
        RunOptions options = test::typed_options(std::string("train.pt -o ") + place);
        {
            OwnOutput output(options, folder.path());
            output.set_job("a");
            CHECK(exists(folder, place));
            begin_job(folder.path() + "/" + place, "a");
            output.end(66);
        }
        CHECK_FALSE(exists(folder, "new"));
        CHECK(exists(folder, "there"));
        CHECK_FALSE(exists(folder, "there/a"));
    }
}

TEST_CASE("a folder that cannot be made ends the job with the way out") {
    const ModelFolder folder;
    write_file(folder.path() + "/runs", "a file");
    RunOptions options = test::typed_options("train.pt");
    const std::string told =
        test::error_of(ExitCode::kDisk, [&] { const OwnOutput output(options, folder.path()); });
    CHECK_THAT(told, Catch::Contains("cannot make the folder for the results: Not a directory"));
    CHECK_THAT(told, Catch::Contains("--output DIR") && Catch::Contains("--no-output"));
}

TEST_CASE("--resume without --output is told the newest run of the model that has a checkpoint") {
    const ModelFolder folder;
    const auto told = [&] {
        RunOptions options = test::typed_options("train.pt --resume");
        return test::error_of(ExitCode::kUsage,
                              [&] { const OwnOutput output(options, folder.path()); });
    };
    CHECK_THAT(told(), Catch::Contains("give the checkpoint's folder: --resume=DIR"));
    for (const char* run :
         {"train-20260101-000000", "train-20260102-000000", "train-large-20260103-000000"}) {
        const std::string checkpoints = folder.path() + "/runs/" + run + "/checkpoints";
        std::filesystem::create_directories(checkpoints);
        write_file(checkpoints + "/latest", "");
    }
    std::filesystem::create_directories(folder.path() + "/runs/train-20260104-000000");
    CHECK_THAT(told(), Catch::Contains("add -o runs/train-20260102-000000"));
    // A run that resumes from a named folder of checkpoints has an output folder of its own.
    RunOptions options = test::typed_options("train.pt --resume=runs/train-20260101-000000");
    const OwnOutput output(options, folder.path());
    CHECK(output.is_made());
}

TEST_CASE("the command that goes on with a job is the same with --resume and the job's folder") {
    const auto command = [](const std::string& line, bool is_own) {
        RunOptions options = test::typed_options(line);
        if (is_own) options.output = "runs/train-1";
        return resume_command(split(line, ' '), options, is_own);
    };
    CHECK(command("train.pt --steps 5", true) ==
          "dslaunch train.pt --steps 5 -o runs/train-1 --resume");
    CHECK(command("train.pt -o run --steps 5", false) ==
          "dslaunch train.pt -o run --steps 5 --resume");
    CHECK(command("--resume=old train.pt", true) == "dslaunch train.pt -o runs/train-1 --resume");
    CHECK(command("train.pt --resum -o run", false) == "dslaunch train.pt -o run --resume");
    CHECK(command("-o run -- train.pt", false) == "dslaunch --resume -o run -- train.pt");
    CHECK(command("train.pt --no-output", false).empty());
    CHECK(command("train.pt --lora r=4,targets=*.q_proj --env HF_TOKEN=hf_abcdefghijklmnop", true)
              .find("hf_abcdef") == std::string::npos);
    CHECK_THAT(command("train.pt --lora targets=*.q", true), Catch::Contains("'targets=*.q'"));
}

TEST_CASE("what is next is a command that writes text with what was trained") {
    struct Row {
        const char* target;
        const char* made;
        const char* prompts;  // in run.json
        const char* command;
    };
    const Row rows[] = {
        {"chat", "model.safetensors", "", "dslaunch generate OUT --chat \"…\""},
        {"chat", "adapter/adapter_model.safetensors", "rows.safetensors",
         "dslaunch generate BASE --adapter OUT --chat \"…\""},
        {"plain", "model.safetensors", "", "dslaunch generate OUT --prompt \"…\""},
        {"classes", "model.safetensors", "", ""},
        {"train.pt", "model.safetensors", "text", "dslaunch generate OUT --prompt \"…\""},
        {"train.pt", "model.safetensors", "ids", "dslaunch generate OUT --prompt-ids 5,17,2"},
        {"train.pt", "model.safetensors", "", ""},
        {"train.pt", "metrics.jsonl", "text", ""},
    };
    for (const Row& row : rows) {
        INFO(row.target << " " << row.made);
        const ModelFolder folder;
        const std::string at = folder.path();
        for (const char* model : {"chat", "plain", "classes"}) {
            std::filesystem::create_directories(at + "/" + model);
            write_file(at + "/" + model + "/tokenizer.json", "{}");
            write_file(at + "/" + model + "/config.json",
                       std::string(model) == "classes"
                           ? R"({"architectures": ["BertForSequenceClassification"]})"
                           : R"({"architectures": ["LlamaForCausalLM"]})");
        }
        write_file(at + "/chat/tokenizer_config.json", R"({"chat_template": "{{ x }}"})");
        write_file(at + "/plain/tokenizer_config.json", R"({"model_max_length": 8})");
        std::filesystem::create_directories(at + "/out/adapter");
        write_file(at + "/out/" + row.made, "x");
        write_file(at + "/out/run.json",
                   std::string(R"({"run": {"prompts": ")") + row.prompts + "\"}}");
        launch::JobSpec spec;
        spec.target = row.target;
        spec.working_directory = at;
        spec.output_directory = at + "/out";
        if (std::string(row.made).starts_with("adapter")) spec.weight_files = {row.made};
        std::string expected = row.command;
        if (const size_t place = expected.find("OUT"); place != std::string::npos)
            expected.replace(place, 3, at + "/out");
        if (const size_t place = expected.find("BASE"); place != std::string::npos)
            expected.replace(place, 4, at + "/chat");
        CHECK(use_command(spec, {}) == expected);
        RunOptions trusted;
        trusted.trust_model = true;
        trusted.op_libraries = {"my ops.so"};
        const std::string more = expected.empty() || std::string(row.target) != "train.pt"
                                     ? ""
                                     : " --trust-model --op-library 'my ops.so'";
        CHECK(use_command(spec, trusted) == expected + more);
        write_file(at + "/out/run.json", "half of {");
        if (std::string(row.target) == "train.pt") CHECK(use_command(spec, {}).empty());
    }
}

}  // namespace dslaunch::launcher
