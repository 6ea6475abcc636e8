#include "launch/jobs/job_record.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

JobSpec one_rank(const TemporaryFolder& folder, const std::string& id = "job-1") {
    JobSpec spec;
    spec.job_id = id;
    spec.target = "train.pt";
    spec.state_directory = folder.path() + "/state/dslaunch";
    spec.environment.set = {{"HF_TOKEN", "hunter2"}};
    spec.world_size = 1;
    PlannedNode node;
    node.name = "n0";
    node.user = "me";
    PlannedWorker worker;
    worker.command = {"program", "--api-key", "hunter2"};
    node.workers = {worker};
    spec.nodes = {node};
    return spec;
}

struct Warnings {
    std::vector<std::string> lines;
    std::function<void(std::string_view)> sink() {
        return [this](std::string_view line) { lines.emplace_back(line); };
    }
};

nlohmann::json job_json(const TemporaryFolder& folder, const std::string& id = "job-1") {
    return nlohmann::json::parse(folder.read("state/dslaunch/jobs/" + id + "/job.json"));
}

}  // namespace

TEST_CASE("a job's record follows it from the start to the end and holds no secret") {
    TemporaryFolder folder;
    const JobSpec spec = one_rank(folder);
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    CHECK(job_json(folder)["state"] == "starting");
    record.begin_attempt(spec, 0);
    auto json = job_json(folder);
    CHECK(json["state"] == "running");
    CHECK(json["exit_code"].is_null());
    CHECK(json["launcher"]["pid"] == ::getpid());
    CHECK(json["launcher"]["start_time"] == name_process(::getpid()).start_time);
    CHECK(json["hosts"][0]["name"] == "n0");
    CHECK(json["hosts"][0]["ranks"] == 1);
    record.wait_for_restart(1);
    CHECK(job_json(folder)["state"] == "restarting");
    record.end(68);
    json = job_json(folder);
    CHECK(json["state"] == "ended");
    CHECK(json["exit_code"] == 68);
    CHECK(json["restarts"] == 1);
    CHECK(json.dump().find("hunter2") == std::string::npos);
    CHECK(warnings.lines.empty());
    struct stat facts {};
    REQUIRE(::stat((spec.state_directory + "/jobs/job-1").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0700);
}

TEST_CASE("hosts of an earlier attempt stay known, without ranks") {
    TemporaryFolder folder;
    JobSpec spec = one_rank(folder);
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    record.begin_attempt(spec, 0);
    JobSpec later = spec;
    later.nodes[0].name = "n1";
    record.begin_attempt(later, 1);
    const auto hosts = job_json(folder)["hosts"];
    REQUIRE(hosts.size() == 2);
    CHECK(hosts[0]["ranks"] == 0);
    CHECK(hosts[1]["name"] == "n1");
    CHECK(hosts[1]["ranks"] == 1);
}

TEST_CASE("the log of a job is kept to its newest 8 to 16 MiB, in whole lines") {
    TemporaryFolder folder;
    const JobSpec spec = one_rank(folder);
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    const std::string line(1023, 'x');
    constexpr int kLines = 20 * 1024;  // about 20 MiB
    for (int i = 0; i < kLines; ++i) record.lines(0, "n0", fmt::format("{} {}\n", i, line));
    record.settle();
    const std::string path = spec.state_directory + "/jobs/job-1/job.log";
    const auto bytes = std::filesystem::file_size(path);
    const auto older = std::filesystem::file_size(path + ".1");
    CHECK(bytes + older <= 2 * static_cast<uint64_t>(kJobLogBytesMax));
    CHECK(older > static_cast<uint64_t>(kJobLogBytesMax) - 2'000);
    const std::string text = folder.read("state/dslaunch/jobs/job-1/job.log");
    CHECK(text.starts_with("0\tn0\t"));
    CHECK(text.find(fmt::format("0\tn0\t{} x", kLines - 1)) != std::string::npos);
}

TEST_CASE("lines of ranks and ours are kept in the order in which they came") {
    for (const bool has_output : {false, true}) {
        TemporaryFolder folder;
        JobSpec spec = one_rank(folder);
        if (has_output) spec.output_directory = folder.path();
        Warnings warnings;
        JobRecord record(spec, warnings.sink());
        record.lines(0, "n0", "a\nb\n");
        record.note("two\nlines");
        record.lines(0, "n0", "c\n");
        record.settle();
        CHECK(folder.read("state/dslaunch/jobs/job-1/job.log") ==
              "0\tn0\ta\n0\tn0\tb\n-\t\ttwo\n-\t\tlines\n0\tn0\tc\n");
    }
}

TEST_CASE("the newest step is there at once, later ones each second, the last one at the end") {
    TemporaryFolder folder;
    const JobSpec spec = one_rank(folder);
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    for (int step = 1; step <= 50; ++step) record.metrics(fmt::format("{{\"loss\": {}}}", step));
    record.metrics("{\"eval_loss\": 7}");
    record.settle();
    CHECK(folder.read("state/dslaunch/jobs/job-1/progress.json") == "{\"loss\": 1}\n");
    record.end(0);
    CHECK(folder.read("state/dslaunch/jobs/job-1/progress.json") == "{\"loss\": 50}\n");
}

TEST_CASE("a record that cannot be written costs one warning and no job") {
    TemporaryFolder folder;
    JobSpec spec = one_rank(folder);
    std::ofstream(folder.path() + "/state") << "a file is in the way";
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    record.begin_attempt(spec, 0);
    record.lines(0, "n0", "a\n");
    record.metrics("{}");
    record.end(0);
    REQUIRE(warnings.lines.size() == 1);
    CHECK_THAT(warnings.lines[0], Catch::Contains("the job continues"));
}

TEST_CASE("a folder that goes away while the job runs costs one warning") {
    TemporaryFolder folder;
    const JobSpec spec = one_rank(folder);
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    std::filesystem::remove_all(spec.state_directory);
    record.begin_attempt(spec, 0);
    record.end(0);
    CHECK(warnings.lines.size() == 1);
}

TEST_CASE("a second job of the same name is told apart while the first one runs") {
    TemporaryFolder folder;
    const JobSpec spec = one_rank(folder);
    Warnings warnings;
    {
        JobRecord first(spec, warnings.sink());
        JobRecord second(spec, warnings.sink());
        second.end(3);
        CHECK(job_json(folder)["state"] == "starting");
        REQUIRE(warnings.lines.size() == 1);
        CHECK_THAT(warnings.lines[0], Catch::Contains("another job named `job-1` is running"));
    }
    JobRecord third(spec, warnings.sink());
    third.end(0);
    CHECK(job_json(folder)["state"] == "ended");
    CHECK(warnings.lines.size() == 1);
}

TEST_CASE("a job's id is a plain word, never a path") {
    for (const char* id : {"a", "1f2e3d", "run_7.b-2", "A"}) CHECK(is_job_id(id));
    for (const char* id : {"", ".", "..", ".hidden", "a/b", "../x", "a b", "a\n", "a\x1b[31m", "ä",
                           "$(x)", "`x`", "*"}) {
        CHECK_FALSE(is_job_id(id));
    }
    CHECK(is_job_id(std::string(128, 'a')));
    CHECK_FALSE(is_job_id(std::string(129, 'a')));
}

TEST_CASE("the state folder follows XDG_STATE_HOME, else HOME, and never a relative path") {
    CHECK(state_directory({{"XDG_STATE_HOME", "/x"}, {"HOME", "/h"}}) == "/x/dslaunch");
    CHECK(state_directory({{"XDG_STATE_HOME", "x"}, {"HOME", "/h"}}) == "/h/.local/state/dslaunch");
    CHECK(state_directory({{"HOME", "/h"}}) == "/h/.local/state/dslaunch");
    CHECK(state_directory({}).empty());
}

TEST_CASE("a user without a home is told once that the job is not recorded") {
    TemporaryFolder folder;
    JobSpec spec = one_rank(folder);
    spec.state_directory.clear();
    Warnings warnings;
    JobRecord record(spec, warnings.sink());
    record.begin_attempt(spec, 0);
    record.note("words");
    record.end(0);
    REQUIRE(warnings.lines.size() == 1);
    CHECK_THAT(warnings.lines[0], Catch::Contains("neither XDG_STATE_HOME nor HOME"));
}
