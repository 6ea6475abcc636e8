// Hosts of a job that are the same machine share its processors. Together, their ranks have no more
// threads than there are processors. If the user sets more threads, waiting threads do not spin.
// Such hosts also share the disk, which --save-via rank0 does not expect.
#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "launch/machine/machine_topology.h"
#include "support/catch.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

TrainResult train_on_two_hosts(const TemporaryFolder& folder,
                               const std::vector<std::string>& more) {
    write_file(folder.path() + "/hostfile", "left slots=1\nright slots=1\n");
    std::vector<std::string> where = {"--hostfile", folder.path() + "/hostfile", "--launcher",
                                      "local"};
    where.insert(where.end(), more.begin(), more.end());
    return train(folder, where, fixture_archive("gpt"), fixture_config(fixture_facts("gpt"), 1, 2));
}

// Returns the value of NAME in the environment of each rank; "-" if the rank has no such variable.
std::vector<std::string> variables(const TemporaryFolder& folder, const std::string& name) {
    const Json run = Json::parse(folder.read("out/run.json"));
    std::vector<std::string> values;
    for (const Json& rank : run.at("ranks"))
        values.push_back(rank.at("environment").value(name, "-"));
    return values;
}

}  // namespace

TEST_CASE("hosts that are one machine divide its processors among all their ranks") {
    const TemporaryFolder folder;
    const TrainResult result = train_on_two_hosts(folder, {});
    INFO(result.err);
    REQUIRE(result.code == 0);
    const std::string share = std::to_string(std::max(launch::processors_granted() / 2, 1));
    CHECK(variables(folder, "OMP_NUM_THREADS") == std::vector<std::string>{share, share});
    CHECK(variables(folder, "OMP_WAIT_POLICY") == std::vector<std::string>{"-", "-"});
    for (const std::string& looks : variables(folder, "GOMP_SPINCOUNT"))
        CHECK(parse_int(looks).value_or(0) >= 500);
    CHECK(result.err.find("divided among 2 ranks") == std::string::npos);
    CHECK(folder.read("out/logs/rank-0.log").find("divided among 2 ranks") != std::string::npos);
}

TEST_CASE("more threads than processors are told, and those that wait sleep") {
    const std::string threads = std::to_string(launch::processors_granted() + 1);
    for (const bool chosen : {false, true}) {
        const TemporaryFolder folder;
        std::vector<std::string> more = {"--env", "OMP_NUM_THREADS=" + threads};
        if (chosen) more.insert(more.end(), {"--env", "OMP_WAIT_POLICY=active"});
        const TrainResult result = train_on_two_hosts(folder, more);
        INFO(result.err);
        REQUIRE(result.code == 0);
        const std::string policy = chosen ? "active" : "passive";
        CHECK(variables(folder, "OMP_WAIT_POLICY") == std::vector<std::string>{policy, policy});
        CHECK(variables(folder, "GOMP_SPINCOUNT") == std::vector<std::string>{"-", "-"});
        CHECK(result.err.find("(OMP_WAIT_POLICY=" + policy + ")") != std::string::npos);
    }
}

TEST_CASE("more ranks than processors are warned of, whatever OMP_NUM_THREADS is") {
    const std::string processors = std::to_string(launch::processors_granted());
    const std::string ranks = std::to_string(launch::processors_granted() + 1);
    for (const char* threads : {"", "OMP_NUM_THREADS=1"}) {
        const TemporaryFolder folder;
        std::vector<std::string> more = {"--num_gpus", ranks};
        if (*threads != '\0') more.insert(more.end(), {"--env", threads});
        const TrainResult result =
            train(folder, more, fixture_archive("gpt"), fixture_config(fixture_facts("gpt"), 1, 1));
        INFO(result.err);
        REQUIRE(result.code == 0);
        CHECK(result.err.find(ranks + " workers share the " + processors + " processor") !=
              std::string::npos);
        CHECK(result.err.find("slower than " + processors + " worker") != std::string::npos);
    }
}

TEST_CASE("hosts that save over rank 0 though they share its disk save, and go on from there") {
    const TemporaryFolder folder;
    write_file(folder.path() + "/hostfile", "left slots=1\nright slots=1\n");
    const std::vector<std::string> where = {
        "--hostfile", folder.path() + "/hostfile", "--launcher", "local", "--save-via",
        "rank0",      "--save-interval",           "2"};
    const auto run = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words = where;
        words.insert(words.end(), more.begin(), more.end());
        return train(folder, words, fixture_archive("gpt"),
                     fixture_config(fixture_facts("gpt"), 1, 4));
    };
    const TrainResult whole = run({});
    INFO(whole.err);
    REQUIRE(whole.code == 0);
    const std::string root = folder.path() + "/out/checkpoints";
    CHECK(std::filesystem::exists(root + "/step-2/manifest.json"));
    CHECK(!std::filesystem::exists(root + ".host-1"));
    std::filesystem::remove_all(root + "/step-4");
    const TrainResult resumed = run({"--resume"});
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK(resumed.err.find("resuming from " + root + "/step-2") != std::string::npos);
    CHECK(resumed.losses().back() == whole.losses().back());
}

}  // namespace dslaunch::test
