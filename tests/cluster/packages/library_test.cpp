// Builds programs of users against an installed dslaunch, as its guide says. examples/engine must
// get the same losses as dslaunch with the same data. A program without LibTorch plans and starts a
// job.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/skip.h"
#include "support/train_job.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

const std::string kBuild = fs::path(test::binary_dir()).parent_path().string();
constexpr int kBuildMs = 600'000;

std::string torch_dir() {
    std::ifstream facts(kBuild + "/package-facts");
    for (std::string line; std::getline(facts, line);)
        if (line.starts_with("torch_dir='")) return line.substr(11, line.size() - 12);
    return {};
}

// Runs COMMAND, which must end with CODE, and returns both its outputs.
std::string library_run(const TemporaryFolder& folder, const std::vector<std::string>& command,
                        int code = 0) {
    JobProcess process(folder, command);
    const int ended = process.wait(kBuildMs);
    INFO(fmt::format("{}", fmt::join(command, " ")) << "\n" << process.out() << process.err());
    REQUIRE(ended == code);
    return process.out() + process.err();
}

bool can_build(const std::string& what) {
    for (const char* const program : {"cmake", "c++", "nm"})
        if (!has_program(program)) {
            report_skipped(what, std::string(program) + " is not installed");
            return false;
        }
    return true;
}

// An installation of the library that a program finds, and programs built against it.
struct Installed {
    Installed() {
        library_run(folder,
                    {"cmake", "--install", kBuild, "--prefix", prefix(), "--component", "library"});
    }
    [[nodiscard]] std::string prefix() const { return folder.path() + "/prefix"; }
    // Builds the program in SOURCE and returns its path.
    [[nodiscard]] std::string build(const std::string& source, const std::string& program) const {
        const std::string place = folder.path() + "/" + program;
        library_run(folder, {"cmake", "-S", source, "-B", place, "-DCMAKE_BUILD_TYPE=Release",
                             "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_PREFIX_PATH=" + prefix(),
                             "-DDSLAUNCH_TORCH=" + torch_dir()});
        library_run(folder, {"cmake", "--build", place});
        return place + "/" + program;
    }
    TemporaryFolder folder;
};

// Returns "STEP LOSS" for each step in a run's metrics, as it stands there.
std::vector<std::string> losses_in(const std::string& folder) {
    std::vector<std::string> losses;
    std::ifstream metrics(folder + "/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
        const Json json = Json::parse(line);
        if (json.contains("loss"))
            losses.push_back(json.at("step").dump() + " " + json.at("loss").dump());
    }
    return losses;
}

Json config_of_stage(int stage, int64_t accumulation) {
    return {{"train_micro_batch_size_per_gpu", 2},
            {"gradient_accumulation_steps", accumulation},
            {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
            {"gradient_clipping", 0.5},
            {"zero_optimization", {{"stage", stage}}}};
}

}  // namespace

TEST_CASE("a program with its own loop gets the bits of dslaunch on 1 and 2 ranks, and resumes") {
    if (!can_build("programs with the engine")) return;
    if (torch_dir().empty() || !fs::exists(std::string(binary_dir()) + "/dsworker"))
        return report_skipped("programs with the engine", "dsworker is not built");
    ::setenv("OMP_NUM_THREADS", "1", 1);
    const Installed installed;
    const TemporaryFolder& folder = installed.folder;
    const std::string own_loop =
        installed.build(std::string(source_dir()) + "/examples/engine", "own_loop");
    const std::string model = folder.path() + "/train.pt", text = folder.path() + "/text";
    const std::string tokens = text + ".tokens";
    library_run(folder,
                {kDslaunch, "model", "new", "gpt", "--vocab", "256", "--width", "32", "--heads",
                 "2", "--layers", "2", "--context", "32", "--dropout", "0.1", "-o", model});
    fs::copy(std::string(source_dir()) + "/examples/gpt-kjv/genesis.txt", text);
    library_run(folder, {kDslaunch, "tokens", "bytes", text, "-o", tokens});

    struct Kind {
        const char* name;
        int ranks, stage;
        Json more = Json::object();
    };
    const std::vector<Kind> kinds = {
        {"alone", 1, 0},
        {"stage-0", 2, 0},
        {"stage-1", 2, 1},
        {"stage-2-bf16", 2, 2, {{"bf16", {{"enabled", true}}}}},
        {"stage-3", 2, 3},
        {"stages", 2, 0, {{"dslaunch", {{"pipeline", {{"stages", 2}}}}}}},
        {"tensor", 2, 1, {{"dslaunch", {{"tensor", {{"size", 2}}}}}}}};
    for (const auto& [name, ranks, stage, more] : kinds) {
        INFO(name);
        const std::string config = fmt::format("{}/{}.json", folder.path(), name);
        Json wanted = config_of_stage(stage, 2);
        wanted.update(more);
        write_file(config, wanted.dump());
        const std::string theirs = fmt::format("{}/theirs-{}", folder.path(), name);
        const std::string ours = fmt::format("{}/ours-{}", folder.path(), name);
        const std::vector<std::string> on = {kDslaunch, "--num_gpus", std::to_string(ranks),
                                             "--device", "cpu"};
        std::vector<std::string> whole = on;
        whole.insert(whole.end(),
                     {"--config", config, "--output", theirs, "--data", tokens, "--context", "32",
                      "--set", "dslaunch.data.shuffle=false", "--steps", "4", model});
        library_run(folder, whole);
        // The program takes two steps, is started again, and goes on.
        for (const char* const steps : {"2", "4"}) {
            std::vector<std::string> own = on;
            if (ranks == 1) own.clear();  // alone, without dslaunch
            own.insert(own.end(), {own_loop, model, config, text, ours, steps});
            CHECK_THAT(library_run(folder, own), Catch::Contains("held-out loss "));
            // The folder holds a run, whose weights stand for its end.
            CHECK(fs::exists(ours + "/model.safetensors"));
        }
        CHECK(losses_in(theirs).size() == 4);
        CHECK(losses_in(ours) == losses_in(theirs));
        const bool is_same =
            content_of(ours + "/model.safetensors") == content_of(theirs + "/model.safetensors");
        CHECK(is_same);
    }
    // A program is refused with the same messages as dslaunch.
    const std::string wrong = folder.path() + "/wrong.json";
    write_file(wrong, R"({"optimzer": {}})");
    CHECK_THAT(
        library_run(folder, {own_loop, model, wrong, text, folder.path() + "/none", "1"}, 65),
        Catch::Contains("did you mean `optimizer`"));
    CHECK_FALSE(fs::exists(folder.path() + "/none/checkpoints"));
    write_file(folder.path() + "/short", "In the beginning");
    CHECK_THAT(
        library_run(folder, {own_loop, model, wrong, folder.path() + "/short", folder.path(), "1"},
                    66),
        Catch::Contains("/short: has less text than a sample needs"));
}

TEST_CASE("the libraries show a program their own functions and nothing else") {
    if (!can_build("the library's functions")) return;
    const TemporaryFolder folder;
    for (const char* const library : {"libdslaunch.so", "libdslaunch_engine.so"}) {
        const std::string path = std::string(binary_dir()) + "/" + library;
        const bool needs_torch = std::string(library) == "libdslaunch_engine.so";
        if (needs_torch && !fs::exists(std::string(binary_dir()) + "/dsworker")) {
            report_skipped("the engine's functions", "dsworker is not built");
            continue;
        }
        REQUIRE(fs::exists(path));
        // Names without a version, such as spdlog's, would be mixed with a program's own.
        CHECK(library_run(folder, {"nm", "-DC", "--undefined-only", path}).find("spdlog") ==
              std::string::npos);
        const std::string symbols = library_run(folder, {"nm", "-DC", "--defined-only", path});
        INFO(symbols);
        std::istringstream lines(symbols);
        int count = 0;
        for (std::string line; std::getline(lines, line); ++count) {
            const std::string name = line.substr(std::min<size_t>(19, line.size()));
            const bool is_own = name.starts_with("dslaunch::") || name.starts_with("DSLAUNCH_0");
            CHECK(is_own);
            const bool is_private =
                name.find("Session") != name.npos || name.find("Job::Process") != name.npos;
            CHECK_FALSE(is_private);
        }
        CHECK(count > 5);
        CHECK(count < 40);
    }
}

TEST_CASE("a program without LibTorch plans a job and starts it") {
    if (!can_build("programs with the launcher")) return;
    const Installed installed;
    const TemporaryFolder& folder = installed.folder;
    fs::create_directory(folder.path() + "/source");
    write_file(folder.path() + "/source/CMakeLists.txt", R"(cmake_minimum_required(VERSION 3.18)
project(starts LANGUAGES CXX)
find_package(dslaunch 0.1 REQUIRED COMPONENTS launcher plan)
add_executable(starts main.cpp)
target_compile_features(starts PRIVATE cxx_std_20)
target_link_libraries(starts PRIVATE dslaunch::launcher dslaunch::plan)
)");
    write_file(folder.path() + "/source/main.cpp", R"(#include <cstdio>
#include <fstream>
#include "dslaunch/launcher.h"
#include "dslaunch/plan.h"
int main(int argc, char** argv) {
    try {
        if (argc == 4) {
            const auto plan = dslaunch::make_plan(
                {.model = argv[3], .options = {"--world-size", "2", "--context", "8"}});
            std::printf("%zu ranks, %ld parameters, %s, %zu instructions\n", plan.ranks.size(),
                        long(plan.parameters), plan.fits ? "fits" : "does not fit",
                        plan.ranks[1].instructions.size());
        }
        auto job = dslaunch::Job::start({.target = "sh",
                                         .arguments = {"-c", "echo rank $RANK; exit $CODE"},
                                         .options = {"--num_gpus", "2", "--device", "cpu"},
                                         .environment = {{"CODE", argv[1]}}});
        const int code = job.wait();
        std::printf("ended with %d, again %d\n", code, job.wait_for({}).value());
        auto other = dslaunch::Job::start({.target = "sh",
                                           .arguments = {"-c", "echo ready; sleep 1000"},
                                           .options = {"--grace", "1"},
                                           .stdout_file = argv[2]});
        while (std::ifstream(argv[2]).peek() == EOF)
            if (other.wait_for(std::chrono::milliseconds(5))) return 1;
        other.stop();
        std::printf("stopped with %d\n", other.wait());
    } catch (const dslaunch::Error& error) {
        std::printf("error %d: %s\n", int(error.code()), error.what());
    }
}
)");
    const std::string starts = installed.build(folder.path() + "/source", "starts");
    const std::string named = "DSLAUNCH=" + kDslaunch;
    const std::string log = folder.path() + "/log";
    const std::string said = library_run(folder, {"env", named, starts, "7", log});
    CHECK_THAT(said, Catch::Contains("ended with 7, again 7"));
    CHECK_THAT(said, Catch::Contains("stopped with 76"));
    CHECK_THAT(library_run(folder, {"env", "-u", "DSLAUNCH", "PATH=/bin", starts, "7", log}),
               Catch::Contains("error 71: cannot find the program dslaunch"));
    if (!fs::exists(std::string(binary_dir()) + "/dsworker"))
        return report_skipped("plans of programs", "dsworker is not built");
    const std::string model = fixture_archive("gpt");
    const std::string planned = library_run(folder, {"env", named, starts, "0", log, model});
    CHECK_THAT(planned, Catch::Contains("2 ranks, ") && Catch::Contains(", fits, "));
    CHECK_THAT(planned, Catch::Contains("rank 0") && Catch::Contains("rank 1"));
    CHECK_THAT(library_run(folder, {"env", named, starts, "0", log, folder.path() + "/nothing.pt"}),
               Catch::Contains("error 66: ") && Catch::Contains("nothing.pt"));
}
