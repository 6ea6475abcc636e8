// `dslaunch ckpt` and `dslaunch zero_to_fp32` as a user runs them, on checkpoints that the store
// has written.
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/places.h"
#include "support/sanitizer.h"
#include "support/skip.h"
#include "support/stored_model.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;
namespace fs = std::filesystem;

namespace {

constexpr int kDamaged = static_cast<int>(ExitCode::kCheckpoint);

struct Ran : test::ProgramEnd {
    [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out); }
};

Ran run(const TemporaryFolder& folder, std::vector<std::string> words) {
    return {test::run_dslaunch(folder, std::move(words))};
}

// Three checkpoints of a run, of which the newest has an infinity, and a save that was interrupted.
struct Run {
    TemporaryFolder folder;
    std::unique_ptr<FileTree> tree = make_disk_tree();
    std::string output = folder.path() + "/run";
    std::string root = output + "/checkpoints";
    std::vector<std::string> steps;

    Run() {
        for (const int64_t step : {3, 5, 7}) {
            StoredModel model = StoredModel::small(step);
            if (step == 7) {
                model.value = [](int, int, int64_t) {
                    return std::numeric_limits<float>::infinity();
                };
            }
            steps.push_back(model.save(*tree, root, step == 5 ? 3 : 2));
        }
        fs::create_directories(root + "/step-9.tmp-abc");
        std::ofstream(root + "/step-9.tmp-abc/weights-00000-of-00001.safetensors") << "torn";
    }
    void damage(const std::string& step_folder) const {
        const std::string path = step_folder + "/weights-00001-of-00003.safetensors";
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(-2, std::ios::end);
        const auto place = file.tellg();
        const char changed = static_cast<char>(file.peek() ^ 4);
        file.seekp(place);
        file.put(changed);
    }
};

}  // namespace

TEST_CASE("ls shows each checkpoint's state, and a save that broke off") {
    const Run made;
    const Ran all = run(made.folder, {"ckpt", "ls", made.output, "--json"});
    REQUIRE(all.code == 0);
    const nlohmann::json rows = all.json();
    REQUIRE(rows.size() == 4);
    const auto row = [&](int64_t step) {
        return *std::ranges::find_if(rows, [&](const auto& one) { return one["step"] == step; });
    };
    CHECK(row(7)["state"] == "not finite");
    CHECK(row(5)["state"] == "complete");
    CHECK(row(5)["world_size"] == 3);
    CHECK(row(5)["loss"] == 2.5);
    CHECK(row(9)["state"] == "incomplete");
    CHECK(row(3)["verified"] == false);
    fs::resize_file(made.steps[0] + "/weights-00001-of-00002.safetensors", 100);
    const Ran table = run(made.folder, {"ckpt", "ls", made.root});
    CHECK_THAT(table.out, Catch::Contains("damaged"));
    CHECK_THAT(table.out, Catch::Contains("weights-00001-of-00002.safetensors"));
    const Ran one = run(made.folder, {"ckpt", "ls", made.steps[1], "--json"});
    REQUIRE(one.json().size() == 1);
    CHECK(one.json()[0]["step"] == 5);
}

TEST_CASE("verify marks what is whole, and names file and tensor of what is not") {
    const Run made;
    const auto verified = [&](const std::string& step) {
        return run(made.folder, {"ckpt", "ls", step, "--json"}).json()[0]["verified"];
    };
    const Ran unmarked = run(made.folder, {"ckpt", "verify", made.steps[1], "--no-mark"});
    CHECK(unmarked.code == 0);
    CHECK(verified(made.steps[1]) == false);
    CHECK(run(made.folder, {"ckpt", "verify", made.output}).code == 0);
    for (const std::string& step : made.steps) CHECK(verified(step) == true);

    made.damage(made.steps[1]);
    const Ran all = run(made.folder, {"ckpt", "verify", made.output, "--json"});
    CHECK(all.code == kDamaged);
    CHECK(all.json()["newest_whole"] == made.steps[0]);
    const Ran one = run(made.folder, {"ckpt", "verify", made.steps[1]});
    CHECK(one.code == kDamaged);
    CHECK_THAT(one.out, Catch::Contains("weights-00001-of-00003.safetensors"));
    CHECK_THAT(one.out, Catch::Contains("wte.weight") || Catch::Contains("h.0") ||
                            Catch::Contains("nothing") || Catch::Contains("scale"));
    CHECK_THAT(one.err, Catch::Contains(made.steps[0]));
}

TEST_CASE("inspect prints training state, config, tensors and their statistics") {
    const Run made;
    const Ran ran = run(made.folder, {"ckpt", "inspect", made.output, "--stats", "--json"});
    REQUIRE(ran.code == 0);
    const nlohmann::json json = ran.json();
    CHECK(json["path"] == made.steps[1]);  // the newest checkpoint without an infinity
    CHECK(json["training"]["samples_seen"] == 40);
    CHECK(json["config"]["train_batch_size"] == 8);
    const auto line = *std::ranges::find_if(json["tensors"], [](const auto& one) {
        return one["name"] == "h.0.bias" && one["state"] == "exp_avg";
    });
    CHECK(line["min"] == stored_value(2, 0, 0));
    CHECK(line["max"] == stored_value(2, 0, 6));
    const Ran text = run(made.folder, {"ckpt", "inspect", made.output, "--tensor", "lm_head*"});
    CHECK_THAT(text.out, Catch::Contains("wte.weight = lm_head.weight"));
    CHECK(run(made.folder, {"ckpt", "inspect", made.output, "--tensor", "x"}).code ==
          static_cast<int>(ExitCode::kUsage));
    CHECK(run(made.folder, {"ckpt", "inspect", made.output, "--config"}).out ==
          "{\"train_batch_size\":8}\n");
}

TEST_CASE("diff ends with 0, 1 or the code of an error") {
    const Run made;
    const Ran same = run(made.folder, {"ckpt", "diff", made.steps[0], made.steps[0]});
    CHECK(same.code == 0);
    const Ran other = run(made.folder, {"ckpt", "diff", made.steps[0], made.steps[1]});
    CHECK(other.code == 1);  // step, updates and samples differ
    CHECK_THAT(other.out, Catch::Contains("samples_seen: 24 | 40"));
    CHECK(run(made.folder, {"ckpt", "diff", made.steps[0], made.folder.path()}).code == kDamaged);
    made.damage(made.steps[1]);
    CHECK(run(made.folder, {"ckpt", "diff", made.steps[0], made.steps[1]}).code == kDamaged);
}

TEST_CASE("diff lists the first differences and counts the rest") {
    const Run made;
    std::vector<float> values(50);
    std::vector<SafetensorsEntry> a, b;
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i);
        const std::string name = fmt::format("t{}", i);
        a.push_back({name, DType::kF32, {1}, std::as_bytes(std::span(&values[0], 1))});
        b.push_back({name, DType::kF32, {1}, std::as_bytes(std::span(&values[i], 1))});
    }
    const std::string path = made.folder.path();
    write_safetensors(path + "/a.safetensors", a);
    write_safetensors(path + "/b.safetensors", b);
    std::vector<std::string> words = {"ckpt", "diff", path + "/a.safetensors",
                                      path + "/b.safetensors"};
    const Ran few = run(made.folder, words);
    CHECK(few.code == 1);
    CHECK_THAT(few.out, Catch::Contains("... and 29 more differences (--all lists all"));
    CHECK(std::ranges::count(few.out, '\n') == 2 + 20 + 1 + 2);
    words.emplace_back("--all");
    CHECK(std::ranges::count(run(made.folder, words).out, '\n') == 2 + 49 + 2);
}

TEST_CASE("export and zero_to_fp32 write the weights, under the name of DeepSpeed's script too") {
    const Run made;
    const std::string out = made.folder.path() + "/out";
    CHECK(run(made.folder, {"ckpt", "export", made.output, out}).code == 0);
    const Ran again = run(made.folder, {"ckpt", "export", made.output, out});
    CHECK(again.code == static_cast<int>(ExitCode::kInput));
    CHECK_THAT(again.err, Catch::Contains("--force"));
    CHECK(run(made.folder, {"ckpt", "diff", made.output, out}).code == 0);
    const Ran hf = run(made.folder, {"ckpt", "export", made.output, out + "2", "--format", "hf"});
    CHECK(hf.code == 0);
    CHECK_THAT(hf.err,
               Catch::Contains("has no config.json, so programs cannot load it as a model"));
    // A run of a Hugging Face folder has these files already.
    write_file(made.output + "/config.json", "{}");
    write_file(made.output + "/tokenizer.json", "{}");
    const Ran own = run(made.folder, {"ckpt", "export", made.output, out + "3", "--format", "hf"});
    CHECK(own.code == 0);
    CHECK_THAT(own.err, Catch::Contains("copied these files from " + made.output +
                                        ": config.json tokenizer.json"));
    const std::string step = made.steps[0] + "/";  // as a shell completes it
    CHECK_THAT(run(made.folder, {"ckpt", "export", step, out + "5", "--format", "hf"}).err,
               Catch::Contains("copied these files from " + made.output));
    // OUT's own config.json stays.
    write_file(out + "4/config.json", "[]");
    CHECK(run(made.folder, {"ckpt", "export", made.output, out + "4", "--format", "hf"}).code == 0);
    CHECK(content_of(out + "4/config.json") == "[]");

    const std::string script = std::string(test::binary_dir()) + "/zero_to_fp32.py";
    const std::string fp32 = made.folder.path() + "/fp32";
    JobProcess process(made.folder, {script, made.output, fp32, "-t", "step-3", "--max_shard_size",
                                     "100B", "--exclude_frozen_parameters"});
    CHECK(process.wait() == 0);
    CHECK_THAT(process.err(), Catch::Contains("pytorch_model.bin"));
    std::ifstream in(fp32 + "/model.safetensors.index.json");
    const auto index = nlohmann::json::parse(in);
    CHECK_FALSE(index["weight_map"].contains("frozen.weight"));
    CHECK(index["weight_map"].contains("lm_head.weight"));
}

TEST_CASE("a command that chooses a checkpoint says so when `latest` names another one") {
    const Run made;
    const std::string out = made.folder.path() + "/out";
    const std::string told = fmt::format(
        "{0}/latest names step-3, but the file is only a hint: {0}/step-5 is used", made.root);
    const auto err_of = [&](std::vector<std::string> words) {
        const Ran ran = run(made.folder, std::move(words));
        CHECK(ran.code == 0);
        return ran.err;
    };
    // `latest` names step-7, which is skipped because of its infinity.
    CHECK_THAT(err_of({"ckpt", "export", made.output, out}), !Catch::Contains("only a hint"));
    std::ofstream(made.root + "/latest") << "step-3\n";
    CHECK_THAT(err_of({"ckpt", "export", made.output, out + "1"}), Catch::Contains(told));
    CHECK_THAT(err_of({"ckpt", "inspect", made.output + "/latest"}), Catch::Contains(told));
    CHECK_THAT(err_of({"zero_to_fp32", made.output, out + "2"}), Catch::Contains(told));
    CHECK_THAT(err_of({"ckpt", "export", made.steps[1], out + "3"}),
               !Catch::Contains("only a hint"));
}

TEST_CASE("verify takes one checkpoint whatever its folder is called") {
    const Run made;
    for (const char* name : {"abandoned-import-1-2-step-5", "copy"}) {
        const std::string folder = fmt::format("{}/{}", made.root, name);
        fs::copy(made.steps[1], folder, fs::copy_options::recursive);
        const Ran whole = run(made.folder, {"ckpt", "verify", folder, "--json"});
        INFO(whole.err);
        REQUIRE(whole.code == 0);
        CHECK(whole.json()["checkpoints"][0]["step"] == 5);
        CHECK(whole.json()["checkpoints"][0]["folder"] == folder);
        made.damage(folder);
        CHECK(run(made.folder, {"ckpt", "verify", folder}).code == kDamaged);
    }
    const Ran none = run(made.folder, {"ckpt", "verify", made.root + "/step-4"});
    CHECK(none.code == kDamaged);
}

TEST_CASE("zero_to_fp32 writes of a DeepSpeed checkpoint what DeepSpeed's own script does") {
    const std::string fixtures = test::fixture_path("deepspeed/");
    const TemporaryFolder folder;
    for (const std::string name : {"fp32-2", "bf16-3", "bf16-0", "bf16-1-accumulate"}) {
        INFO(name);
        const std::string out = fmt::format("{}/{}", folder.path(), name);
        const Ran ran = run(folder, {"zero_to_fp32", fixtures + name, out});
        INFO(ran.err);
        REQUIRE(ran.code == 0);
        // The export has written no checkpoint of our own format on its way.
        CHECK(std::distance(fs::directory_iterator(out), {}) == 1);
        const SafetensorsFile written(out + "/model.safetensors");
        const SafetensorsFile expected(fixtures + name + ".safetensors");
        size_t weights = 0;
        for (const SafetensorsEntry& entry : expected.entries()) {
            if (entry.name.find(".exp_avg") != std::string::npos) continue;
            INFO(entry.name);
            const SafetensorsEntry* found = written.find(entry.name);
            REQUIRE(found != nullptr);
            CHECK(found->dtype == entry.dtype);
            CHECK(found->shape == entry.shape);
            CHECK(std::ranges::equal(found->bytes, entry.bytes));
            ++weights;
        }
        CHECK(weights == written.entries().size());
    }
}

TEST_CASE("misuse says what is missing and what to do") {
    const Run made;
    const TemporaryFolder empty;
    struct Case {
        std::vector<std::string> words;
        ExitCode code;
        std::string says;
    };
    const std::string out = empty.path() + "/out";
    const std::string file = made.folder.path() + "/notes.txt";
    std::ofstream(file) << "not a checkpoint";
    const std::string full = made.folder.path() + "/full";
    fs::create_directories(full);
    std::ofstream(full + "/config.json") << "{}";
    const std::vector<Case> cases = {
        {{"ckpt"}, ExitCode::kUsage, "ckpt"},
        {{"ckpt", "verify"}, ExitCode::kUsage, "PATH"},
        {{"ckpt", "diff", "a"}, ExitCode::kUsage, "B"},
        {{"ckpt", "export", made.output}, ExitCode::kUsage, "OUT"},
        {{"ckpt", "import", "a"}, ExitCode::kUsage, "OUT"},
        {{"ckpt", "lss"}, ExitCode::kUsage, "ls"},
        {{"zero_to_fp32"}, ExitCode::kUsage, "CHECKPOINT_DIR"},
        {{"ckpt", "ls", empty.path() + "/no"}, ExitCode::kCheckpoint, "no such folder"},
        {{"ckpt", "ls", file}, ExitCode::kCheckpoint, "is a file"},
        {{"ckpt", "verify", file}, ExitCode::kCheckpoint, "is a file"},
        {{"zero_to_fp32", file, out}, ExitCode::kInput, file},
        {{"ckpt", "verify", empty.path()}, ExitCode::kCheckpoint, "no checkpoint"},
        {{"ckpt", "inspect", empty.path()}, ExitCode::kCheckpoint, "no checkpoint"},
        {{"ckpt", "export", empty.path(), out}, ExitCode::kCheckpoint, "no checkpoint"},
        {{"ckpt", "export", made.output, "/proc/x/y"}, ExitCode::kDisk, "/proc/x/y"},
        {{"ckpt", "export", made.output, out, "--format", "pickle"}, ExitCode::kUsage, "pickle"},
        {{"ckpt", "export", made.output, out, "--format", "torchscript"},
         ExitCode::kUsage,
         "--model"},
        {{"ckpt", "export", made.output, out, "--max-shard-size", "5XB"}, ExitCode::kUsage, "5XB"},
        {{"ckpt", "export", made.output, out, "--max-shard-size", "5"},
         ExitCode::kUsage,
         "write 5GB or 5MB"},
        {{"ckpt", "export", made.output, file},
         ExitCode::kUsage,
         "is a file; OUT must be a folder"},
        {{"ckpt", "export", made.output, full, "--config-from", full},
         ExitCode::kInput,
         "config.json: already exists; use --force to replace it"},
        {{"ckpt", "export", made.output, out, "--format", "hf", "--config-from",
          fixture_path("huggingface/qwen3")},
         ExitCode::kInput,
         "belongs to another model"},
        {{"ckpt", "export", made.output, out, "--config-from", empty.path()},
         ExitCode::kInput,
         "config.json"},
        {{"ckpt", "export", made.output, out, "--all-names"}, ExitCode::kUsage, "hf"},
        {{"ckpt", "export", made.output, out + ".gguf"},
         ExitCode::kUsage,
         "dslaunch compress FOLDER --to q8_0 -o"},
        {{"ckpt", "export", made.output, out + ".bin"},
         ExitCode::kUsage,
         "OUT must be a folder or a file NAME.safetensors"},
        {{"ckpt", "import", empty.path(), made.output}, ExitCode::kInput, "--force"},
        {{"ckpt", "import", made.output, out},
         ExitCode::kInput,
         "dslaunch MODEL --data FILE --output " + made.output + " --resume continues it"},
        {{"ckpt", "export", made.output, out + ".safetensors", "--format", "hf"},
         ExitCode::kUsage,
         "give a name without this ending, such as " + out + ";"},
        {{"zero_to_fp32", empty.path(), out}, ExitCode::kInput, empty.path()}};
    for (const Case& one : cases) {
        const Ran ran = run(made.folder, one.words);
        std::string words;
        for (const std::string& word : one.words) words += word + " ";
        INFO(words << ran.err);
        CHECK(ran.code == static_cast<int>(one.code));
        CHECK_THAT(ran.err, Catch::Contains(one.says));
        CHECK_FALSE(fs::exists(out + "/model.safetensors"));
    }
    for (const char* command : {"ls", "verify", "inspect", "diff", "export", "import"})
        CHECK(run(made.folder, {"ckpt", command, "--help"}).code == 0);
}

TEST_CASE("an export's memory is bounded by the largest tensor, not by the model") {
    const TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    // 8 tensors of 16 MiB; one is stored column by column.
    constexpr int64_t kSide = 2048;
    StoredModel model;
    model.checkpoint = StoredModel::small().checkpoint;
    model.checkpoint.states.clear();
    model.checkpoint.tensors.clear();
    for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
        model.checkpoint.tensors.push_back(StoredModel::tensor(name, {kSide, kSide}));
    model.checkpoint.tensors[3].strides = {1, kSide};
    const std::string step = model.save(*tree, folder.path() + "/checkpoints", 2);
    const auto peak_kib = [&](const std::vector<std::string>& words) {
        std::vector<char*> argv = {const_cast<char*>(kDslaunch.c_str())};
        for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        const pid_t child = ::fork();
        if (child == 0) {
            const int null = ::open("/dev/null", O_WRONLY);
            ::dup2(null, 1);
            ::dup2(null, 2);
            ::execv(argv[0], argv.data());
            ::_exit(126);
        }
        int status = 0;
        rusage usage{};
        REQUIRE(::wait4(child, &status, 0, &usage) == child);
        REQUIRE(WIFEXITED(status));
        REQUIRE(WEXITSTATUS(status) == 0);
        return usage.ru_maxrss;
    };
    if (kSanitized) {
        report_skipped("the memory of an export", "a sanitizer's own memory grows with it");
        return;
    }
    const long own = peak_kib({"ckpt", "export", "--help"});
    const long largest = kSide * kSide * 4 / 1024;
    for (const char* dtype : {"fp32", "bf16"}) {
        const std::string out = folder.path() + "/out-" + dtype;
        const long peak = peak_kib({"ckpt", "export", step, out, "--dtype", dtype});
        INFO(dtype << ": " << peak << " KiB, the program's own " << own);
        CHECK(peak < own + 2 * largest);
    }
    CHECK(peak_kib({"ckpt", "diff", step, folder.path() + "/out-fp32"}) < own + 3 * largest);
}
