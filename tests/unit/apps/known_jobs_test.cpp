#include "launcher/jobs/known_jobs.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "launch/jobs/job_record.h"
#include "launch/metrics/metrics_file.h"
#include "launcher/jobs/ran_elsewhere.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/job_process.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

// Records a job as its launcher would. EXIT_CODE -1: the job still runs.
void record_job(const std::string& state, const std::string& id, int exit_code,
                const std::string& output = "") {
    JobSpec spec;
    spec.output_directory = output;
    spec.job_id = id;
    spec.state_directory = state;
    spec.target = "train.pt";
    PlannedNode node;
    node.name = "n0";
    node.workers.resize(2);
    spec.nodes = {node};
    spec.world_size = 2;
    JobRecord record(spec, [](std::string_view line) { FAIL(std::string(line)); });
    record.begin_attempt(spec, 0);
    record.metrics("{\"step\": 7, \"loss\": 2.5}");
    if (exit_code >= 0) record.end(exit_code);
}

// Records a job in a child process, which then dies like a launcher that is killed.
void record_lost_job(const std::string& state, const std::string& id) {
    const pid_t child = ::fork();
    if (child == 0) {
        record_job(state, id, -1);
        ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
}

std::string known_jobs_refusal(const std::string& state, const std::string& text) {
    return error_of(ExitCode::kUsage, [&] { (void)find_job(state, text); });
}

}  // namespace

TEST_CASE("a running, an ended and a lost job are told apart") {
    TemporaryFolder folder;
    record_job(folder.path(), "running-1", -1);
    record_job(folder.path(), "ended-1", 69);
    record_lost_job(folder.path(), "lost-1");
    const KnownJob running = find_job(folder.path(), "running-1");
    CHECK(running.lives);
    CHECK(running.state == "running");
    CHECK(running.step == 7);
    CHECK(running.loss == 2.5);
    CHECK(running.world_size == 2);
    CHECK(running.hosts_in_use() == 1);
    CHECK(running.launcher == name_process(::getpid()));
    const KnownJob ended = find_job(folder.path(), "ended-1");
    CHECK(ended.state == "ended");
    CHECK(ended.exit_code == 69);
    const KnownJob lost = find_job(folder.path(), "lost-1");
    CHECK_FALSE(lost.lives);
    CHECK(lost.state == "lost");
    CHECK_FALSE(lost.exit_code);
}

TEST_CASE("an id may be shortened while it is one job's, and is never a path") {
    TemporaryFolder folder;
    for (const char* id : {"abc1", "abc2", "abc", "xyz"}) record_job(folder.path(), id, 0);
    CHECK(find_job(folder.path(), "x").id == "xyz");
    CHECK(find_job(folder.path(), "abc").id == "abc");
    CHECK(find_job(folder.path(), "abc2").id == "abc2");
    CHECK_THAT(known_jobs_refusal(folder.path(), "ab"),
               Catch::Contains("is the beginning of the ids of 3 jobs"));
    CHECK_THAT(known_jobs_refusal(folder.path(), "q"),
               Catch::Contains("no job with the id `q` was found"));
    for (const char* hostile : {"..", "../jobs", "/etc", "a/b", "x\n", "\x1b[31m", "$(id)", "*"})
        CHECK_THAT(known_jobs_refusal(folder.path(), hostile),
                   Catch::Contains("is not a job's id"));
    CHECK_THAT(known_jobs_refusal(folder.path(), ""), Catch::Contains("which job?"));
}

TEST_CASE("a job is found by its output folder and by a file in it, and its end is told in words") {
    TemporaryFolder folder;
    const std::string run = folder.path() + "/run";
    std::filesystem::create_directories(run + "/logs");
    std::ofstream(run + "/metrics.jsonl") << "";
    record_job(folder.path(), "first", 66, run);
    record_job(folder.path(), "second", 0, run);
    record_job(folder.path(), "third", 76);
    CHECK(find_job(folder.path(), run).id == "second");
    CHECK(find_job(folder.path(), run + "/").id == "second");
    CHECK(find_job(folder.path(), run + "/metrics.jsonl").id == "second");
    CHECK_THAT(known_jobs_refusal(folder.path(), run + "/logs"),
               Catch::Contains("it is not the --output folder of a recorded job"));
    record_job(folder.path(), "gone", 0, run + "-removed");
    CHECK(find_job(folder.path(), run + "-removed").id == "gone");
    // A relative path of a folder that is gone, which could also be the beginning of an id.
    record_job(folder.path(), "relative", 0, std::filesystem::absolute("gone9").string());
    CHECK(find_job(folder.path(), "gone9").id == "relative");
    record_job(folder.path(), "running", -1, run);
    record_job(folder.path(), "refused", 73, run);
    CHECK(find_job(folder.path(), run).id == "running");
    CHECK(state_text(find_job(folder.path(), "first")) == "failed (66 input)");
    CHECK(state_text(find_job(folder.path(), "second")) == "ok");
    CHECK(state_text(find_job(folder.path(), "third")) == "interrupted");
}

TEST_CASE(
    "a run that was renamed or removed is told with its job, and its new name if it is near") {
    const TemporaryFolder folder;
    const std::string run = folder.path() + "/run";
    record_job(folder.path(), "job-7", 0, run);
    ::setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
    std::filesystem::create_directory(folder.path() + "/dslaunch");
    std::filesystem::rename(folder.path() + "/jobs", folder.path() + "/dslaunch/jobs");
    const auto told = [&](const std::string& path) {
        return error_of(ExitCode::kInput, [&] { refuse_moved_output(path); });
    };
    CHECK(told(run) == run +
                           ": this --output folder of job job-7 (ok) has been moved or removed: "
                           "give its new path");
    CHECK(told(run + "-other") == "accepted");
    const auto copy_to = [&](const std::string& name, bool has_weights) {
        const std::string copy = folder.path() + "/" + name;
        std::filesystem::create_directories(copy);
        std::ofstream(copy + "/run.json") << R"({"job_id": "job-7"})";
        if (!has_weights) return;
        std::ofstream(copy + "/config.json") << "{}";
        std::ofstream(copy + "/model.safetensors") << "weights";
    };
    copy_to("empty", false);  // not a place to continue from
    CHECK_THAT(told(run), Catch::EndsWith("has been moved or removed: give its new path"));
    copy_to("best", true);
    CHECK_THAT(told(run), Catch::EndsWith("has been renamed: give " + folder.path() + "/best"));
    copy_to("copy", true);
    CHECK_THAT(told(run), Catch::Contains("has been renamed or copied: give one of ") &&
                              Catch::Contains(folder.path() + "/copy"));
    // A file that is missing in the run is not a run that was moved.
    std::filesystem::create_directories(run);
    CHECK(told(run) == "accepted");
    CHECK(told(run + "/adapter") == "accepted");
    ::unsetenv("XDG_STATE_HOME");
}

TEST_CASE("a path that is not a job's is told that servers are not jobs, and which one serves it") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model";
    const std::string followed = folder.path() + "/log";
    std::filesystem::create_directory(model);
    std::ofstream(followed) << "";
    CHECK_THAT(known_jobs_refusal(folder.path(), model),
               Catch::EndsWith("A server that `dslaunch serve` started is not a job: Ctrl-C in its "
                               "terminal ends it"));
    // A process with the words of a server, which follows a file until it is ended.
    const pid_t server = ::fork();
    if (server == 0) {
        ::execlp("tail", "dslaunch", "serve", model.c_str(), "-f", followed.c_str(), nullptr);
        ::_exit(1);
    }
    const std::string expected = fmt::format("process {} serves {}", server, model);
    std::string told;
    for (int tries = 0; tries < 500 && told.find(expected) == std::string::npos; ++tries) {
        told = known_jobs_refusal(folder.path(), model);
        ::usleep(10'000);
    }
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
    CHECK_THAT(told, Catch::Contains(expected));
}

TEST_CASE("a command copied to another folder is told where its job ran") {
    const TemporaryFolder folder;
    const std::string there = folder.path() + "/my work", here = folder.path() + "/here";
    for (const std::string& path : {there + "/T", there + "/r", here + "/other"})
        std::filesystem::create_directories(path);
    write_file(there + "/rows.safetensors", "");
    using Words = std::vector<std::string>;
    // Returns what is said about WORDS in WHERE after a job has run in THERE.
    const auto said = [&](const std::string& where, const Words& words) {
        return in_child([&] {
                   ::setenv("XDG_STATE_HOME", (folder.path() + "/state").c_str(), 1);
                   JobSpec spec;
                   spec.job_id = "abc1";
                   spec.state_directory = folder.path() + "/state/dslaunch";
                   spec.target = "T";
                   spec.working_directory = there;
                   spec.output_directory = there + "/r";
                   JobRecord record(spec, [](std::string_view) {});
                   record.begin_attempt(spec, 0);
                   record.end(76);
                   if (::chdir(where.c_str()) != 0) return std::string("no folder");
                   return ran_elsewhere_text(words);
               })
            .text;
    };
    const auto in_there = [&](const std::string& name) {
        return fmt::format("; {1} is in {0}, where job abc1 ran: cd '{0}'", there, name);
    };
    const Words command = {"T",  "--data", "rows.safetensors", "--steps", "6",
                           "-o", "r",      "--resume"};
    CHECK(said(here, command) == in_there("T"));
    CHECK(said(there, command).empty());
    // With an absolute model, the other names show it.
    CHECK(said(here, {"/models/T", "-o", "r/", "--resume"}) == in_there("r/"));
    CHECK(said(here, {"/models/T", "--output=r", "--resume"}) == in_there("r"));
    CHECK(said(here, {"r", "--prompt", "hi"}) == in_there("r"));
    // These words are of no job, or name what is here.
    CHECK(said(here, {"U", "--data", "rows.safetensors"}).empty());
    CHECK(said(here, {"other"}).empty());
    CHECK(said(here, {"T2", "-o", "r2"}).empty());
}

TEST_CASE("damaged records are passed over, and a record cannot speak for another job") {
    TemporaryFolder folder;
    record_job(folder.path(), "good", 0);
    const std::string jobs = folder.path() + "/jobs/";
    for (const char* id : {"empty", "torn", "types", "liar", "nothing"}) {
        std::filesystem::create_directory(jobs + id);
    }
    std::ofstream(jobs + "empty/job.json") << "";
    std::ofstream(jobs + "torn/job.json") << "{\"job_id\": \"torn\", ";
    std::ofstream(jobs + "types/job.json") << "{\"job_id\": 7}";
    std::filesystem::copy(jobs + "good/job.json", jobs + "liar/job.json");
    const auto found = read_jobs(folder.path());
    REQUIRE(found.size() == 1);
    CHECK(found[0].id == "good");
    CHECK(read_jobs(folder.path() + "/nowhere").empty());
}

TEST_CASE("jobs of one second are listed in the order of their starts, the newest first") {
    TemporaryFolder folder;
    const std::vector<std::string> ids = {"m", "a", "z", "b", "y"};
    for (const std::string& id : ids) record_job(folder.path(), id, 0);
    std::vector<std::string> listed;
    for (const KnownJob& job : read_jobs(folder.path())) listed.push_back(job.id);
    CHECK(listed == std::vector<std::string>(ids.rbegin(), ids.rend()));
}

TEST_CASE("the newest hundred jobs that are over are kept, and every running one") {
    TemporaryFolder folder;
    record_job(folder.path(), "running", -1);
    for (int i = 0; i < 103; ++i) record_job(folder.path(), fmt::format("job-{}", i), 0);
    remove_old_jobs(folder.path());
    CHECK(read_jobs(folder.path()).size() == kKeptJobs + 1);
    CHECK(find_job(folder.path(), "running").lives);
}

TEST_CASE("ages are told in two units at most") {
    const std::vector<std::pair<int64_t, std::string>> rows = {
        {-5, "0 s"},         {119, "119 s"},      {120, "2 min"},       {7199, "119 min"},
        {7200, "2 h 0 min"}, {7325, "2 h 2 min"}, {172'800, "2 d 0 h"}, {180'000, "2 d 2 h"},
    };
    for (const auto& [seconds, text] : rows) CHECK(age_text(seconds) == text);
}

TEST_CASE("a folder in which a training runs is refused by the id of its job") {
    const TemporaryFolder folder;
    JobSpec spec;
    spec.state_directory = folder.path();
    spec.output_directory = folder.path() + "/out";
    std::filesystem::create_directories(spec.output_directory);
    const auto told = [&] {
        return error_of(ExitCode::kCheckpoint, [&] { refuse_running_output(spec); });
    };
    CHECK(told() == "accepted");
    record_job(folder.path(), "4711", -1, spec.output_directory);
    CHECK(told() == "accepted");  // a program's job, which writes no metrics
    {
        const MetricsFile metrics(spec.output_directory);
        CHECK_THAT(told(), Catch::Contains("job 4711 is running and writes there, now at step 7"));
        CHECK_THAT(told(), Catch::Contains("`dslaunch stop 4711` ends it"));
        spec.state_directory = folder.path() + "/other";
        CHECK_THAT(told(), Catch::Contains("another job is writing there"));
    }
    CHECK(told() == "accepted");
}
