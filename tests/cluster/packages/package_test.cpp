// Tests the packages that tools/package.sh makes for users. An archive is unpacked into another
// folder and started with an empty environment; a wheel's files must match its RECORD. LibTorch is
// not packed here, so this takes only seconds. `make package-check` tests the other packages in
// roots that contain nothing else.
#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launch/files/sha256.h"
#include "launch/machine/elf_needs.h"
#include "support/catch.h"
#include "support/skip.h"
#include "support/train_job.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

const std::string kPackageBuild = fs::path(test::binary_dir()).parent_path().string();

// Returns the value of NAME in the facts that the build wrote for packages, without quotes.
std::string package_fact(const std::string& name) {
    std::ifstream facts(kPackageBuild + "/package-facts");
    for (std::string line; std::getline(facts, line);) {
        if (!line.starts_with(name + "=")) continue;
        std::erase(line, '\'');
        return line.substr(name.size() + 1);
    }
    return {};
}

bool can_package(const std::string& what) {
    if (!fs::exists(std::string(test::binary_dir()) + "/dsworker") ||
        package_fact("torch_dir").empty()) {
        report_skipped(what, "dsworker is not built");
        return false;
    }
    for (const char* const program : {"cmake", "zstd", "tar", "readelf", "strip", "unzip"}) {
        if (has_program(program)) continue;
        report_skipped(what, std::string(program) + " is not installed");
        return false;
    }
    return true;
}

// Returns the path of the package whose name ends with ENDING. The first call makes all packages.
std::string package(const std::string& ending) {
    static const TemporaryFolder folder;
    const std::string dist = folder.path() + "/dist";
    if (!fs::exists(dist))
        run_well(folder, {std::string(test::source_dir()) + "/tools/package.sh", "-b",
                          kPackageBuild, "-t", "apart", "-o", dist, "-z", "1", "archive", "wheel"});
    std::vector<std::string> made;
    for (const auto& entry : fs::directory_iterator(dist))
        if (entry.path().string().ends_with(ending)) made.push_back(entry.path().string());
    REQUIRE(made.size() == 1);
    return made.front();
}

// Checks that PROGRAM finds all its libraries in PLACE. Exceptions are the C++ runtime, which comes
// from the machine, and LibTorch, which is not packed here.
void check_libraries(const std::string& place, const std::string& program) {
    int found = 0;
    for (const launch::SharedLibrary& library :
         launch::list_libraries(place + "/bin/" + program, {})) {
        INFO(library.name << " " << library.path);
        if (library.name.starts_with("libstdc++.") || library.name.starts_with("libgcc_s."))
            continue;
        const bool is_torch = library.name == "libtorch_cpu.so" || library.name == "libc10.so";
        CHECK((is_torch ? library.path.empty() : library.path.starts_with(place + "/")));
        ++found;
    }
    CHECK(found > 10);
}

std::string base64_for_names(const std::string& bytes) {
    std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
    const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                       reinterpret_cast<const unsigned char*>(bytes.data()),
                                       static_cast<int>(bytes.size()));
    text.resize(static_cast<size_t>(length));
    std::erase(text, '=');
    std::replace(text.begin(), text.end(), '+', '-');
    std::replace(text.begin(), text.end(), '/', '_');
    return text;
}

// Checks that FOLDER has the licence of each library that comes along or is compiled in.
void check_licenses(const std::string& folder) {
    for (const char* const start :
         {"libcli11", "libfmt", "libgloo", "libspdlog", "libssh-", "libyaml-cpp", "nlohmann-json3",
          "libzstd", "liburing", "libssl", "libonig", "libutf8proc", "libxxhash"}) {
        std::string text;
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.path().filename().string().starts_with(start))
                text = content_of(entry.path());
        INFO(start);
        CHECK((mentions(text, "opyright") || mentions(text, "icense")));
    }
}

}  // namespace

TEST_CASE("an archive runs from a strange folder with an empty environment") {
    if (!can_package("packages run from any folder")) return;
    const TemporaryFolder folder;
    const std::string archive = package(".tar.zst");
    const std::string place = folder.path() + "/strange (földer) 'of a user'";
    fs::create_directory(place);
    run_well(folder, {"tar", "--zstd", "--strip-components=1", "-xf", archive, "-C", place});
    const std::string dslaunch = place + "/bin/dslaunch";
    CHECK(run_well(folder, {"env", "-i", dslaunch, "--version"}) ==
          run_well(folder, {kDslaunch, "--version"}));
    check_libraries(place, "dslaunch");
    check_libraries(place, "dsworker");
    const std::string documents = place + "/share/doc/dslaunch/";
    check_licenses(documents + "licenses");
    const std::string own = content_of(std::string(test::source_dir()) + "/LICENSE");
    const std::string copyright = content_of(documents + "copyright");
    CHECK(mentions(copyright, own.empty() ? "The sources of dslaunch state no licence" : own));
    for (const auto& entry : fs::directory_iterator(documents + "licenses"))
        CHECK(mentions(copyright, content_of(entry.path())));

    const Json config = fixture_config(fixture_facts("gpt"), 1, 2);
    std::vector<std::string> training =
        training_command(folder, {"--num_gpus", "2"}, fixture_archive("gpt"), config, "/packaged");
    training.front() = dslaunch;
    const auto started_with = [&](const std::vector<std::string>& variables) {
        std::vector<std::string> command = {"env", "-i"};
        command.insert(command.end(), variables.begin(), variables.end());
        command.insert(command.end(), training.begin(), training.end());
        return command;
    };
    JobProcess without(folder, started_with({}));
    CHECK(without.wait() == 71);
    CHECK_THAT(without.err(), Catch::Contains("found no torch beside"));

    // A torch of another version is refused before its libraries are loaded.
    const std::string other = folder.path() + "/other";
    fs::create_directories(other + "/lib");
    std::ofstream(other + "/lib/libtorch_cpu.so") << "not a library";
    std::ofstream(other + "/version.py") << "__version__ = '1.0.0'\n";
    JobProcess wrong(folder, started_with({"DSLAUNCH_TORCH=" + other}));
    CHECK(wrong.wait() == 71);
    CHECK_THAT(wrong.err(), Catch::Contains("is version 1.0.0"));

    run_well(folder, started_with({"DSLAUNCH_TORCH=" + package_fact("torch_dir")}));
    const TrainResult built = train(folder, {"--num_gpus", "2"}, fixture_archive("gpt"), config);
    REQUIRE(built.code == 0);
    const std::vector<double> losses = values_in(metrics_in(folder.path() + "/packaged"), "loss");
    CHECK(losses.size() == 2);
    CHECK(losses == built.losses());
}

TEST_CASE("a wheel's files are those of its RECORD, and pip finds what it must know") {
    if (!can_package("the wheel is as PEP 427 says")) return;
    const TemporaryFolder folder;
    const std::string wheel = package(".whl");
    const std::string unpacked = folder.path() + "/unpacked";
    run_well(folder, {"unzip", "-q", wheel, "-d", unpacked});
    const std::string version = package_fact("version");
    const std::string info = unpacked + "/dslaunch-" + version + ".dist-info";
    size_t files = 0;
    std::ifstream record(info + "/RECORD");
    for (std::string line; std::getline(record, line); ++files) {
        INFO(line);
        const std::string name = line.substr(0, line.find(','));
        if (name.ends_with("/RECORD")) {
            CHECK(line == name + ",,");
            continue;
        }
        const std::string bytes = content_of(unpacked + "/" + name);
        launch::Sha256 hash;
        hash.add(bytes);
        CHECK(line == name + ",sha256=" + base64_for_names(hash.raw()) + "," +
                          std::to_string(bytes.size()));
    }
    size_t found = 0;
    for (const auto& entry : fs::recursive_directory_iterator(unpacked))
        found += entry.is_regular_file() ? 1 : 0;
    CHECK(files == found);
    const std::string tag = wheel.substr(wheel.rfind("-py3-none-manylinux_2_") + 1);
    CHECK_THAT(content_of(info + "/WHEEL"),
               Catch::Contains("Tag: " + tag.substr(0, tag.size() - 4) + "\n"));
    CHECK_THAT(content_of(info + "/METADATA"),
               Catch::Contains("Requires-Dist: torch==" + package_fact("torch_version") + ".*\n"));
    CHECK_THAT(content_of(info + "/METADATA"), Catch::Contains("\nLicense: "));
    check_licenses(info + "/licenses");
    const std::string scripts = unpacked + "/dslaunch-" + version + ".data/scripts";
    for (const char* const program : {"dslaunch", "dsworker"}) {
        const auto mode = fs::status(scripts + "/" + program).permissions();
        CHECK((mode & fs::perms::others_exec) != fs::perms::none);
    }
    // The wheel does not contain LibTorch and CUDA; they come from the environment's torch.
    for (const auto& entry : fs::recursive_directory_iterator(unpacked)) {
        const std::string name = entry.path().filename().string();
        CHECK_FALSE((name.starts_with("libtorch") || name.starts_with("libcud")));
    }
}
