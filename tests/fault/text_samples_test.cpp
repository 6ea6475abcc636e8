// Compares the texts that a run writes during training with the texts that `dslaunch generate`
// writes with the run's final weights.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/fd.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/train_job.h"

namespace dslaunch::test {

namespace {

constexpr int kSampledTokens = 12;
constexpr int64_t kSampledSteps = 2;

std::vector<Json> lines_of(std::istream& in) {
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
}

// A run of a small model, and its prompts.
struct SampledRun {
    TemporaryFolder folder;
    std::string model;               // a path
    std::vector<std::string> data;   // the options of its data
    std::vector<Json> prompts;       // lines of the file
    std::vector<std::string> more;   // more options
    std::vector<std::string> reads;  // words with which `generate` names the result

    [[nodiscard]] std::string output() const { return folder.path() + "/out"; }

    // Trains, and returns the samples of the last step.
    [[nodiscard]] std::vector<Json> train(bool samples) const {
        std::vector<std::string> command = {
            kDslaunch,       "--device", "cpu",      model,
            "--micro-batch", "2",        "--steps",  std::to_string(kSampledSteps),
            "--lr",          "1e-2",     "--output", output()};
        command.insert(command.end(), data.begin(), data.end());
        command.insert(command.end(), more.begin(), more.end());
        if (samples) {
            std::ofstream lines(folder.path() + "/prompts.jsonl");
            for (const Json& prompt : prompts) lines << prompt.dump() << "\n";
            command.insert(
                command.end(),
                {"--eval-interval", "1", "--sample-prompts", folder.path() + "/prompts.jsonl",
                 "--set", "dslaunch.samples.tokens=" + std::to_string(kSampledTokens)});
        }
        JobProcess process(folder, command);
        const int code = process.wait();
        INFO(process.err());
        REQUIRE(code == 0);
        if (!samples) return {};
        std::ifstream in(output() + "/samples.jsonl");
        std::vector<Json> lines = lines_of(in);
        CHECK(lines.size() == (kSampledSteps + 1) * prompts.size());  // step 0 is before training
        std::erase_if(lines, [](const Json& line) { return line.at("step") != kSampledSteps; });
        return lines;
    }

    // Returns the lines that `dslaunch generate` writes with the weights of the run.
    [[nodiscard]] std::vector<Json> generate() const {
        std::vector<std::string> command = {kDslaunch, "generate"};
        command.insert(command.end(), reads.begin(), reads.end());
        command.insert(command.end(), {"--file", folder.path() + "/prompts.jsonl", "--tokens",
                                       std::to_string(kSampledTokens), "--temperature", "0"});
        JobProcess process(folder, command);
        const int code = process.wait();
        INFO(process.err());
        REQUIRE(code == 0);
        std::istringstream out(process.out());
        return lines_of(out);
    }
};

// Makes a GPT whose tokens are bytes, with `dslaunch model new`.
void make_byte_gpt(SampledRun& run) {
    run.model = run.folder.path() + "/gpt.pt";
    JobProcess made(run.folder,
                    {kDslaunch, "model", "new", "gpt", "--vocab", "256", "--width", "32", "--heads",
                     "2", "--layers", "2", "--context", "32", "-o", run.model});
    REQUIRE(made.wait() == 0);
    run.data = {"--data", fixture_path("data/kjv.u16.bin"), "--context", "32"};
    run.prompts = {{{"prompt", "In the beginning"}},
                   {{"prompt", "And the LORD said, Let there be light: and there was"}},
                   {{"prompt", "Behold"}}};
    run.reads = {run.output() + "/model.pt"};
}

// Uses the fixture llama, and trains adapters of it on tokens 1, 2, ….
void make_adapter_run(SampledRun& run) {
    run.model = fixture_path("huggingface/llama");
    std::string tokens;
    for (int i = 0; i < 2000; ++i) {
        const auto token = static_cast<uint16_t>(1 + (i * i) % 59);
        tokens.append(reinterpret_cast<const char*>(&token), sizeof token);
    }
    write_file(run.folder.path() + "/tokens.bin", tokens);
    run.data = {"--data",     run.folder.path() + "/tokens.bin", "--context", "16", "--lora",
                "r=4,alpha=8"};
    run.prompts = {{{"prompt_ids", {5, 17, 2}}}, {{"prompt_ids", {40}}}};
    run.reads = {run.model, "--adapter", run.output()};
}

void check_samples(const SampledRun& run, const std::string& about) {
    const std::vector<Json> samples = run.train(/*samples=*/true);
    const std::vector<Json> texts = run.generate();
    REQUIRE(samples.size() == run.prompts.size());
    REQUIRE(texts.size() == run.prompts.size());
    for (size_t i = 0; i < run.prompts.size(); ++i) {
        INFO(about << ": " << run.prompts[i].dump());
        CHECK(samples[i].at("index") == i);
        CHECK(samples[i].at("ids") == texts[i].at("ids"));
        if (texts[i].contains("text")) CHECK(samples[i].at("text") == texts[i].at("text"));
    }
}

}  // namespace

TEST_CASE("samples of a run are the texts that generate writes with its weights") {
    for (const char* stage : {"0", "3"})
        for (const char* ranks : {"1", "2"}) {
            SampledRun run;
            make_byte_gpt(run);
            run.more = {"--num_gpus", ranks, "--set",
                        std::string("zero_optimization.stage=") + stage};
            check_samples(run, std::string("stage ") + stage + ", ranks " + ranks);
        }
}

TEST_CASE("samples of a run that trains adapters are those of the model with its adapter") {
    SampledRun run;
    make_adapter_run(run);
    run.more = {"--num_gpus", "2", "--set", "zero_optimization.stage=3"};
    check_samples(run, "adapters");
}

TEST_CASE("samples do not change the training") {
    SampledRun with, without;
    for (SampledRun* run : {&with, &without}) {
        make_byte_gpt(*run);
        run->more = {"--num_gpus", "2"};
    }
    static_cast<void>(with.train(/*samples=*/true));
    static_cast<void>(without.train(/*samples=*/false));
    CHECK(with.folder.read("/out/model.safetensors") ==
          without.folder.read("/out/model.safetensors"));
}

TEST_CASE("a run goes on if the file of its samples cannot be written") {
    SampledRun run;
    make_byte_gpt(run);
    std::filesystem::create_directories(run.output() + "/samples.jsonl");
    JobProcess process(
        run.folder, {kDslaunch, "--device", "cpu", run.model, run.data[0], run.data[1], "--context",
                     "32", "--micro-batch", "2", "--steps", "2", "--eval-interval", "1", "--set",
                     "dslaunch.samples.prompts=[\"Behold\"]", "--output", run.output()});
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 0);
    CHECK(process.err().find("the samples of step 1 cannot be written") != std::string::npos);
}

TEST_CASE("samples are refused before the first step where they cannot be written") {
    struct Case {
        std::vector<std::string> more;
        int code;
        std::string told;
    };
    const std::vector<Case> cases = {
        {{"--num_gpus", "2", "--set", "dslaunch.tensor.size=2", "--set",
          "dslaunch.samples.prompts=[\"a\"]"},
         65,
         "dslaunch generate"},
        {{"--num_gpus", "2", "--set", "dslaunch.pipeline.stages=2", "--set",
          "dslaunch.samples.prompts=[\"a\"]"},
         65,
         "dslaunch.samples"},
        // This model's forward returns only a loss.
        {{"--set", "dslaunch.samples.prompts=[\"a\"]"}, 65, "@torch.jit.export"},
    };
    for (const Case& each : cases) {
        const TemporaryFolder folder;
        std::vector<std::string> command = {kDslaunch,       "--device",
                                            "cpu",           fixture_archive("gpt"),
                                            "--data",        fixture_path("data/kjv.u16.bin"),
                                            "--context",     "32",
                                            "--micro-batch", "2",
                                            "--steps",       "3",
                                            "--output",      folder.path() + "/out"};
        command.insert(command.end(), each.more.begin(), each.more.end());
        JobProcess process(folder, command);
        CHECK(process.wait() == each.code);
        INFO(process.err());
        CHECK(process.err().find(each.told) != std::string::npos);
    }
}

}  // namespace dslaunch::test
