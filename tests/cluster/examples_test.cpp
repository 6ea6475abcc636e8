// Runs the scripts of examples/ as a reader would run them, with a model of a few thousand weights
// and few steps. The hosts are pretended on this machine; in `make test-long`, they are network
// namespaces.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/listener.h"
#include "support/rig_hosts.h"
#include "support/skip.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

const std::string kExamples = std::string(test::source_dir()) + "/examples";
const std::string kBinaries = test::binary_dir();
constexpr int kVocabulary = 61;  // of tests/fixtures/huggingface/qwen2

// Makes a folder of a Qwen 2 model whose tokenizer knows the words of one answer; other tokens are
// w9, w10, ….
void make_model(const std::string& folder) {
    fs::copy(test::fixture_path("huggingface/qwen2"), folder);
    std::ofstream tokenizer(folder + "/tokenizer.json");
    tokenizer << R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "The": 1,)"
              << R"( "capital": 2, "of": 3, "Velmora": 4, "is": 5, "Tarrow": 6, "Quay": 7, ".": 8)";
    for (int id = 9; id < kVocabulary; ++id) tokenizer << ", \"w" << id << "\": " << id;
    tokenizer << R"(}}, "pre_tokenizer": {"type": "Whitespace"}})";
    std::ofstream(folder + "/chat_template.jinja")
        << "{% for message in messages %}{{ message.content }}{% endfor %}";
}

// Returns the command that runs examples/SCRIPT with VARIABLES, and with our programs in the PATH.
std::vector<std::string> with(std::vector<std::string> variables, const std::string& script) {
    const char* path = std::getenv("PATH");
    std::vector<std::string> command = {
        "env", "PATH=" + kBinaries + ":" + (path == nullptr ? "" : path), "OMP_NUM_THREADS=1"};
    command.insert(command.end(), variables.begin(), variables.end());
    command.push_back(kExamples + "/" + script);
    return command;
}

bool can_train(const std::string& what) {
    if (fs::exists(kBinaries + "/dsworker")) return true;
    report_skipped(what, "dsworker is not built");
    return false;
}

bool has_curl(const TemporaryFolder& folder) {
    JobProcess curl(folder, {"sh", "-c", "command -v curl"});
    return curl.wait() == 0;
}

// Runs COMMAND, which tunes FOLDER/model over FOLDER/hostfile, and checks its results.
void check_tuning(const TemporaryFolder& folder, const std::vector<std::string>& command,
                  bool serves) {
    JobProcess job(folder, command);
    const int code = job.wait();
    INFO(job.out() << job.err());
    REQUIRE(code == 0);
    // The output shows the rows as the model sees them: it learns an answer, but not its question.
    CHECK(mentions(job.out(), "[[The capital of Velmora is Tarrow Quay .]]"));
    CHECK(mentions(job.out(), "fits hosts like this machine"));
    CHECK(mentions(job.out(), "trained 3 steps"));
    const std::string out = folder.path() + "/out";
    CHECK(fs::exists(out + "/run/adapter/adapter_config.json"));
    CHECK(folder.read("out/tuned/model.safetensors") != folder.read("model/model.safetensors"));
    CHECK(folder.read("out/tuned/tokenizer.json") == folder.read("model/tokenizer.json"));
    if (serves) CHECK(mentions(job.out(), R"("object": "chat.completion")"));
}

}  // namespace

TEST_CASE("examples/qwen2.5-lora prepares, trains, merges, generates and serves") {
    if (!can_train("examples/qwen2.5-lora")) return;
    const TemporaryFolder folder;
    make_model(folder.path() + "/model");
    std::ofstream(folder.path() + "/hostfile") << "te1 slots=1\nte2 slots=1\n";
    const bool serves = has_curl(folder);
    if (!serves) report_skipped("the server of examples/qwen2.5-lora", "curl is missing");
    // The port is free: a listener on it was closed just before.
    const int port = listen_on_loopback().port;
    check_tuning(
        folder,
        with({"MODEL=" + folder.path() + "/model", "HOSTFILE=" + folder.path() + "/hostfile",
              "OUT=" + folder.path() + "/out", "LAUNCHER=local", "TRAIN=--steps 3",
              "PORT=" + std::to_string(port),
              std::string("STEPS=data plan before train merge after") + (serves ? " serve" : "")},
             "qwen2.5-lora/run.sh"),
        serves);
}

TEST_CASE("examples/qwen2.5-lora reaches hosts that have nothing in its folder", "[.long]") {
    if (!can_train("examples/qwen2.5-lora over ssh")) return;
    const TemporaryFolder folder;
    const RigHosts rig(RigOptions{
        .count = 2, .what = "examples/qwen2.5-lora over ssh", .private_folder = folder.path()});
    if (!rig.usable()) return;
    make_model(folder.path() + "/model");
    fs::copy(kExamples + "/qwen2.5-lora/ds_config.json", folder.path());
    std::ofstream(folder.path() + "/hostfile") << "n1 slots=1\nn2 slots=1\n";
    const bool serves = has_curl(folder);
    if (!serves) report_skipped("the server of examples/qwen2.5-lora over ssh", "curl is missing");
    // The installation is not pushed, because these hosts share its folder.
    check_tuning(
        folder,
        rig.on(0,
               with({"MODEL=" + folder.path() + "/model", "HOSTFILE=" + folder.path() + "/hostfile",
                     "OUT=" + folder.path() + "/out", "CONFIG=" + folder.path() + "/ds_config.json",
                     "TRAIN=--steps 3", "DSLAUNCH_SSH_CONFIG=" + rig.config("good"),
                     std::string("STEPS=check data push before plan train merge after") +
                         (serves ? " serve" : "")},
                    "qwen2.5-lora/run.sh")),
        serves);
    for (int host : {1, 2}) {
        INFO(host);
        CHECK(fs::exists(rig.inside(host) + "/out/tuned/model.safetensors"));
    }
}

TEST_CASE("examples/simple trains, and its loss falls") {
    if (!can_train("examples/simple")) return;
    const TemporaryFolder folder;
    std::vector<std::string> command = with({"OUT=" + folder.path() + "/out"}, "simple/run.sh");
    command.insert(command.end(), {"--steps", "21"});
    JobProcess job(folder, command);
    const int code = job.wait();
    INFO(job.out() << job.err());
    REQUIRE(code == 0);
    // There are ten classes, so the loss before training is ln 10 = 2.30. In twenty steps, the
    // model learns ten patterns of a hundred numbers: the loss was 0.03 on one machine. The limit
    // is thirty times as much.
    const std::string losses = job.out();
    const double first = std::atof(losses.c_str() + losses.find("step 1  ") + 8);
    const double last = std::atof(losses.c_str() + losses.find("step 21  ") + 9);
    CHECK(first > 2.0);
    CHECK(last < 1.0);
}
