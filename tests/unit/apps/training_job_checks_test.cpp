#include "launcher/run/training_job_checks.h"

#include <filesystem>

#include "base/error.h"
#include "config/read/unread_config.h"
#include "launcher/options/parse_run.h"
#include "launcher/run/build_job.h"
#include "storage/files/zip_archive.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/text_tools.h"
#include "support/typed_line.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using namespace dslaunch::storage;
using namespace dslaunch::test;
using Words = std::vector<std::string>;

namespace {

const std::string kArchive = test::fixture_path("models/mlp.pt");
constexpr const char* kConfig =
    R"({"train_micro_batch_size_per_gpu": 1, "dslaunch": {"steps": 3,
        "data": {"train": "text.bin", "context": 8}}})";

// Returns the files that must be equal on all nodes, as paths below FOLDER, without dsworker and
// the model.
Words looked_into(const TemporaryFolder& folder, Words options) {
    const Machine machine = head_machine(folder.path());
    options.insert(options.begin(), "models/m.pt");
    const RunOptions parsed = parse_run_options(options);
    JobSpec spec = build_job(parsed, machine).spec;
    look_into_training_job(parsed, spec);
    Words found;
    for (size_t i = 2; i < spec.required_files.size(); ++i) {
        found.push_back(std::filesystem::relative(spec.required_files[i], folder.path()));
    }
    return found;
}

std::string training_job_checks_refusal(const TemporaryFolder& folder, const Words& options,
                                        ExitCode code) {
    return error_of(code, [&] { (void)looked_into(folder, options); });
}

void copy_model(const TemporaryFolder& folder) {
    std::filesystem::create_directories(folder.path() + "/models");
    std::filesystem::copy_file(kArchive, folder.path() + "/models/m.pt");
}

}  // namespace

TEST_CASE("config and data are found where the worker would find them") {
    TemporaryFolder folder;
    copy_model(folder);
    write_file(folder.path() + "/text.bin", "tokens");
    SECTION("beside the archive, data in the working directory") {
        write_file(folder.path() + "/models/ds_config.json", kConfig);
        CHECK(looked_into(folder, {}) == Words{"models/ds_config.json", "text.bin"});
    }
    SECTION("data beside the config come first") {
        write_file(folder.path() + "/conf/c.json", kConfig);
        write_file(folder.path() + "/conf/text.bin", "others");
        CHECK(looked_into(folder, {"--config", "conf/c.json"}) ==
              Words{"conf/c.json", "conf/text.bin"});
    }
    SECTION("packed in the archive") {
        pack_archive(folder.path() + "/models/m.pt", folder.path() + "/models/m.pt",
                     {{"ds_config.json", kConfig}});
        CHECK(looked_into(folder, {}) == Words{"text.bin"});
    }
    SECTION("flags are enough, and go before the config") {
        write_file(folder.path() + "/held.bin", "out");
        CHECK(looked_into(folder, {"--steps=2", "--data", "text.bin", "--eval-data", "held.bin",
                                   "--context", "4"}) == Words{"text.bin", "held.bin"});
    }
}

TEST_CASE("a folder with a model that no run made there is not trained into") {
    for (const char* name :
         {"model.safetensors", "model.pt", "adapter/adapter_model.safetensors"}) {
        TemporaryFolder folder;
        copy_model(folder);
        write_file(folder.path() + "/text.bin", "tokens");
        write_file(folder.path() + "/models/ds_config.json", kConfig);
        const Words begins = {"--output", "out"};
        const Words resumes = {"--output", "out", "--resume"};
        CHECK_NOTHROW(looked_into(folder, begins));
        const std::filesystem::path model = folder.path() + "/out/" + name;
        std::filesystem::create_directories(folder.path() + "/out");
        write_file(folder.path() + "/out/notes.txt", "mine");
        CHECK_NOTHROW(looked_into(folder, resumes));
        std::filesystem::create_directories(model.parent_path());
        write_file(model, "weights");
        for (const Words& options : {begins, resumes})
            CHECK_THAT(training_job_checks_refusal(folder, options, ExitCode::kCheckpoint),
                       Catch::Contains(", which the run would replace"));
        // The files that a run has left are checked by the ranks.
        write_file(folder.path() + "/out/metrics.jsonl", "{}");
        CHECK_NOTHROW(looked_into(folder, resumes));
    }
}

TEST_CASE("a folder with files that the result would replace is no output folder") {
    for (const char* name : {"run.json", "pytorch_model.bin", "model-00001-of-00002.safetensors"}) {
        CAPTURE(name);
        TemporaryFolder folder;
        copy_model(folder);
        write_file(folder.path() + "/text.bin", "tokens");
        write_file(folder.path() + "/models/ds_config.json", kConfig);
        std::filesystem::create_directories(folder.path() + "/out");
        write_file(folder.path() + "/out/" + name, "{\"mine\": 1}");
        CHECK_THAT(training_job_checks_refusal(folder, {"--output", "out"}, ExitCode::kCheckpoint),
                   Catch::Contains(fmt::format("/out: already contains {}", name)));
    }
    TemporaryFolder folder;
    copy_model(folder);
    write_file(folder.path() + "/text.bin", "tokens");
    write_file(folder.path() + "/models/ds_config.json", kConfig);
    std::filesystem::create_directories(folder.path() + "/out/logs");
    for (const char* own : {"{\"dslaunch\": \"0.1.0\"}", "{\"run\": {}}"}) {
        write_file(folder.path() + "/out/run.json", own);
        CHECK_NOTHROW(looked_into(folder, {"--output", "out"}));  // it ended before it trained
    }
    // With a config.json, the result of an archive would be read as a Hugging Face folder.
    write_file(folder.path() + "/out/config.json", kConfig);
    CHECK_THAT(training_job_checks_refusal(folder, {"--output", "out"}, ExitCode::kCheckpoint),
               Catch::Contains("/out: already contains config.json"));
    std::filesystem::remove(folder.path() + "/out/config.json");
    std::filesystem::remove(folder.path() + "/out/run.json");
    std::filesystem::create_symlink("nowhere", folder.path() + "/out/run.json");
    CHECK_THAT(training_job_checks_refusal(folder, {"--output", "out"}, ExitCode::kCheckpoint),
               Catch::Contains("/out: already contains run.json"));
}

TEST_CASE("what others call a checkpoint is refused, with the way to begin from it") {
    TemporaryFolder folder;
    copy_model(folder);
    write_file(folder.path() + "/models/ds_config.json", kConfig);
    const std::vector<std::pair<const char*, const char*>> cases = {
        {"adapter_config.json",
         "is an adapter, not a checkpoint: to start from it, give --lora r=4,init=found"},
        {"trainer_state.json", "is a checkpoint of Hugging Face's Trainer"}};
    for (const auto& [file, text] : cases) {
        std::filesystem::create_directories(folder.path() + "/found");
        write_file(fmt::format("{}/found/{}", folder.path(), file), "{\"r\": 4}");
        CHECK_THAT(training_job_checks_refusal(folder, {"--resume=found"}, ExitCode::kCheckpoint),
                   Catch::Contains(text));
        std::filesystem::remove_all(folder.path() + "/found");
    }
    write_file(folder.path() + "/w.safetensors", "weights");
    CHECK_THAT(
        training_job_checks_refusal(folder, {"--resume=w.safetensors"}, ExitCode::kCheckpoint),
        Catch::Contains("w.safetensors: is text, not a checkpoint"));
    CHECK_THAT(training_job_checks_refusal(folder, {"--data", "models/m.pt,b"}, ExitCode::kInput),
               Catch::Contains("must be a single file; `dslaunch data prepare`"));
}

TEST_CASE("a folder inside a run is no output folder, nor is one that only holds runs") {
    TemporaryFolder folder;
    copy_model(folder);
    write_file(folder.path() + "/text.bin", "tokens");
    write_file(folder.path() + "/models/ds_config.json", kConfig);
    for (const char* run : {"a", "b"})
        std::filesystem::create_directories(
            fmt::format("{}/runs/{}/checkpoints/step-2", folder.path(), run));
    write_file(folder.path() + "/runs/a/checkpoints/step-2/manifest.json", "{}");
    const auto refused = [&](const std::string& output, bool resumes) {
        Words words = {"--output", output};
        if (resumes) words.emplace_back("--resume");
        return training_job_checks_refusal(folder, words, ExitCode::kCheckpoint);
    };
    for (const bool resumes : {false, true}) {
        CHECK_THAT(refused("runs/a/checkpoints/", resumes),
                   Catch::Contains("is the folder of checkpoints of a run") &&
                       Catch::EndsWith("--output " + folder.path() + "/runs/a"));
        CHECK_THAT(refused("runs/a/checkpoints/step-2", resumes),
                   Catch::Contains("is a checkpoint of a run") &&
                       Catch::EndsWith("--output " + folder.path() + "/runs/a"));
    }
    CHECK_THAT(refused("runs", true),
               Catch::Contains("contains 2 runs") && Catch::Contains(folder.path() + "/runs/a, "));
    CHECK_NOTHROW(looked_into(folder, {"--output", "runs"}));
    // Another program's folder `checkpoints`, and a file with that name.
    std::filesystem::create_directories(folder.path() + "/work/yolo/checkpoints/last");
    std::filesystem::create_directories(folder.path() + "/work/conf");
    write_file(folder.path() + "/work/conf/checkpoints", "a list");
    CHECK_NOTHROW(looked_into(folder, {"--output", "work", "--resume"}));
}

TEST_CASE("what is wrong with model, config or data is said before anything starts") {
    TemporaryFolder folder;
    CHECK_THAT(training_job_checks_refusal(folder, {}, ExitCode::kInput),
               Catch::Contains("/models/m.pt: cannot open"));
    write_file(folder.path() + "/models/m.pt", "not a zip");
    CHECK_THAT(training_job_checks_refusal(folder, {}, ExitCode::kInput),
               Catch::Contains("not a usable archive"));
    std::filesystem::remove(folder.path() + "/models/m.pt");
    copy_model(folder);
    CHECK_THAT(training_job_checks_refusal(folder, {}, ExitCode::kInput),
               Catch::Contains("no training data") && Catch::Contains("--data FILE"));
    write_file(folder.path() + "/c.json", kConfig);
    const Words with_config = {"--config", "c.json"};
    const std::string missing = training_job_checks_refusal(folder, with_config, ExitCode::kInput);
    CHECK_THAT(missing, Catch::Contains("data file " + folder.path() + "/text.bin"));
    CHECK_THAT(missing, Catch::Contains("--data FILE"));
    CHECK_THAT(
        training_job_checks_refusal(folder, {"--data", "tatsu-lab/alpaca"}, ExitCode::kInput),
        Catch::Contains("`hf download --repo-type dataset tatsu-lab/alpaca"));
    CHECK_THAT(training_job_checks_refusal(folder, {"--lora", "r=0"}, ExitCode::kConfig),
               Catch::Contains("--lora: dslaunch.lora.r: must be"));
    write_file(folder.path() + "/c.json", R"({"dslaunch": {"data": "text.bin"}})");
    CHECK_THAT(training_job_checks_refusal(folder, with_config, ExitCode::kConfig),
               Catch::Contains("an object {…}, not the string \"text.bin\": write {\"train\""));
    write_file(folder.path() + "/c.json", R"({"train_bach_size": 4, "fp17": {}})");
    const std::string both = training_job_checks_refusal(folder, with_config, ExitCode::kConfig);
    CHECK_THAT(both, Catch::Contains("train_bach_size: unknown key"));
    CHECK_THAT(both, Catch::Contains("fp17: unknown key"));
}

TEST_CASE("prompts for samples are a file, which every host needs, and a text is told its place") {
    TemporaryFolder folder;
    copy_model(folder);
    write_file(folder.path() + "/text.bin", "tokens");
    write_file(folder.path() + "/c.json", kConfig);
    write_file(folder.path() + "/p.jsonl", "{\"prompt\": \"In\"}\n");
    const Words with_prompts = {"--config", "c.json", "--sample-prompts"};
    const auto with = [&](const char* prompts) {
        Words words = with_prompts;
        words.emplace_back(prompts);
        return words;
    };
    CHECK(looked_into(folder, with("p.jsonl")) == Words{"c.json", "text.bin", "p.jsonl"});
    const std::string text =
        training_job_checks_refusal(folder, with("In the beginning"), ExitCode::kInput);
    CHECK_THAT(text, Catch::Contains("--sample-prompts In the beginning"));
    CHECK_THAT(text, Catch::Contains("there is no such file; give a file with one prompt in each"));
    CHECK_THAT(text, Catch::Contains("dslaunch.samples.prompts=[\"In the beginning\"]"));
    CHECK_THAT(training_job_checks_refusal(folder, with("models"), ExitCode::kInput),
               Catch::Contains("is a folder"));
}

TEST_CASE("--resume=best needs a folder with checkpoints") {
    TemporaryFolder folder;
    copy_model(folder);
    CHECK_THAT(training_job_checks_refusal(folder, {"--output", "new", "--resume=best"},
                                           ExitCode::kCheckpoint),
               Catch::Contains("/new: name the folder of an earlier run"));
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/new"));
}

TEST_CASE("a config's device holds where the command line names none") {
    TemporaryFolder folder;
    copy_model(folder);
    write_file(folder.path() + "/text.bin", "tokens");
    std::string config = kConfig;
    config.insert(config.find("\"steps\""), "\"device\": \"cuda\", ");
    write_file(folder.path() + "/c.json", config);
    CHECK_THAT(training_job_checks_refusal(folder, {"--config", "c.json"}, ExitCode::kSetup),
               Catch::Contains("looked for /dev/nvidia0"));
    CHECK(looked_into(folder, {"--config", "c.json", "--device", "cpu"}) ==
          Words{"c.json", "text.bin"});
    // The devices of hosts over ssh are not known yet, so the config's device is requested on every
    // host.
    write_file(folder.path() + "/hosts", "te1 slots=1\n");
    const Machine machine = head_machine(folder.path());
    const auto device_of = [&](const Words& more) {
        Words words = {"models/m.pt", "--config", "c.json", "--hostfile", "hosts"};
        words.insert(words.end(), more.begin(), more.end());
        const RunOptions options = parse_run_options(words);
        JobSpec spec = build_job(options, machine).spec;
        look_into_training_job(options, spec);
        return spec.device;
    };
    CHECK(device_of({}) == DeviceRequest::kCuda);
    CHECK(device_of({"--set", "dslaunch.device=cpu"}) == DeviceRequest::kCpu);
    CHECK(device_of({"--set", "dslaunch.device=auto"}) == DeviceRequest::kAuto);
}

TEST_CASE("a config beside an archive with another config is named as not read") {
    TemporaryFolder folder;
    const std::string beside = folder.path() + "/ds_config.json";
    const auto told = [&] {
        return config::unread_config_text("{} ", "m.pt:ds_config.json", beside);
    };
    CHECK(told().empty());
    write_file(beside, "{}\n");
    CHECK(told().empty());
    write_file(beside, R"({"train_batch_size": 4})");
    CHECK_THAT(told(),
               Catch::StartsWith("m.pt:ds_config.json, the config packed in the model, is"));
    CHECK_THAT(told(), Catch::Contains(beside + " beside it differs and is not read"));
}
