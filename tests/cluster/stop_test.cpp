// The commands for jobs, run as a user runs them. A living job is asked to end, the processes of a
// dead job are ended, and no other job is affected.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

std::vector<std::string> command(const TemporaryFolder& state,
                                 const std::vector<std::string>& words) {
    std::vector<std::string> all = {"env", "XDG_STATE_HOME=" + state.path(), kDslaunch};
    all.insert(all.end(), words.begin(), words.end());
    return all;
}

ProgramEnd stop_run(const TemporaryFolder& state, const std::vector<std::string>& words) {
    return run_program(command(state, words));
}

// A job of two ranks with the name NAME that records its processes. SCRIPT runs after that.
struct Job {
    TemporaryFolder folder;
    JobProcess process;
    std::vector<ProcessName> workers;

    Job(const TemporaryFolder& state, const std::string& name, const std::string& script)
        : process(folder, command(state, {"--num_gpus", "2", "--device", "cpu", "--grace", "3600",
                                          "--rdzv-id", name, "sh", "-c",
                                          "echo $$ >> " + folder.path() + "/pids; " + script})) {
        REQUIRE(wait_until([&] {
            workers = recorded_processes(folder);
            return workers.size() == 2;
        }));
    }
};

const std::string kWilling = "echo rank $RANK; exec sleep 600";
const std::string kStubborn = "trap '' TERM; while :; do sleep 0.05; done";

}  // namespace

TEST_CASE("a running job is listed, its words are shown, and it ends when asked") {
    TemporaryFolder state;
    Job job(state, "run-a", kWilling);
    Job other(state, "run-b", kWilling);
    const auto jobs = nlohmann::json::parse(stop_run(state, {"ps", "--json"}).out);
    REQUIRE(jobs.size() == 2);
    for (const auto& one : jobs) {
        CHECK(one["state"] == "running");
        CHECK(one["ranks"] == 2);
    }
    CHECK(stop_run(state, {"logs", "run-a", "--rank", "1"}).out == "rank 1\n");
    const ProgramEnd ambiguous = stop_run(state, {"stop", "run"});
    CHECK(ambiguous.code == 64);
    CHECK_THAT(ambiguous.err, Catch::Contains("is the beginning of the ids of 2 jobs"));
    const ProgramEnd stopped = stop_run(state, {"stop", "run-a"});
    CHECK(stopped.code == 0);
    CHECK_THAT(stopped.out, Catch::Contains("its launcher ended as asked"));
    CHECK(job.process.wait() == 76);
    CHECK(all_gone(job.workers));
    for (const ProcessName& worker : other.workers) CHECK(name_process(worker.pid) == worker);
    CHECK(nlohmann::json::parse(stop_run(state, {"ps", "--json"}).out).size() == 1);
    CHECK_THAT(stop_run(state, {"ps", "--all"}).out, Catch::Contains("interrupted"));
}

TEST_CASE("a job whose ranks do not want to end is ended at once with --now") {
    TemporaryFolder state;
    Job job(state, "stubborn", kStubborn);
    const ProgramEnd stopped = stop_run(state, {"stop", "stubborn", "--now", "--json"});
    CHECK(stopped.code == 0);  // it must not wait for the grace time of an hour
    CHECK(nlohmann::json::parse(stopped.out)["launcher"] == "ended at once");
    CHECK(job.process.wait() == 76);
    CHECK(all_gone(job.workers));
}

TEST_CASE("what a dead job left is ended; its namesakes and who asks are spared") {
    TemporaryFolder state;
    Job job(state, "dead", kWilling);
    Job other(state, "dead-2", kWilling);
    // A living job with the same name, recorded in another state folder.
    TemporaryFolder other_state;
    Job namesake(other_state, "dead", kWilling);
    job.process.signal(SIGKILL);
    REQUIRE(wait_until([&] { return all_gone(job.workers); }, kGoneMaxMs));
    TemporaryFolder folder;
    const auto record = nlohmann::json::parse(state.read("dslaunch/jobs/dead/job.json"));
    const std::string launch_id = record.at("launch_id");
    CHECK(launch_id.size() == 32);
    JobProcess left(folder, {"env", "DSL_LAUNCH_ID=" + launch_id, "sh", "-c",
                             "echo $$ >> " + folder.path() + "/pids; " + kStubborn});
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 1; }));
    // A process of another launcher whose job has the same name.
    TemporaryFolder foreign_folder;
    JobProcess foreign(foreign_folder,
                       {"env", "TORCHELASTIC_RUN_ID=dead", "DSL_JOB_ID=dead", "sleep", "600"});
    CHECK_THAT(stop_run(state, {"ps", "--all"}).out, Catch::Contains("lost"));
    // The process that runs `stop` has the id in its environment too.
    TemporaryFolder output;
    auto words = command(state, {"stop", "dead", "--json"});
    words.insert(words.begin() + 1, "DSL_LAUNCH_ID=" + launch_id);
    JobProcess stop(output, words);
    REQUIRE(stop.wait() == 0);
    const auto json = nlohmann::json::parse(stop.out());
    CHECK(json["launcher"] == "was dead already");
    const auto& processes = json["hosts"][0]["processes"];
    REQUIRE(processes.size() >= 1);
    for (const auto& process : processes) CHECK(process["ended"] == true);
    CHECK(left.wait() == 128 + SIGKILL);
    CHECK(name_process(foreign.pid()).start_time != 0);
    for (const ProcessName& worker : other.workers) CHECK(name_process(worker.pid) == worker);
    for (const ProcessName& worker : namesake.workers) CHECK(name_process(worker.pid) == worker);
    CHECK_THAT(stop_run(state, {"stop", "dead"}).out,
               Catch::Contains("no process of the job was left"));
}

TEST_CASE("ps --devices tells who holds which GPU; stop --pid ends one process after asking") {
    const TemporaryFolder state, fake;
    const Job job(state, "gpus", kWilling);
    const ProcessName rank = job.workers.front();
    // A stand-in for the driver's tool. It reports one rank, a process of another container, and a
    // free GPU.
    std::ofstream(fake.path() + "/nvidia-smi")
        << "#!/bin/sh\ncase $1 in\n"
           "*driver_version*) echo '0, 580.65.06, 0, 5, 16, 16'; echo '1, 580.65.06, 3, 5, 8, "
           "16';;\n"
           "nvlink) echo 'GPU 0: x'; echo '  Link 0: 26.562 GB/s';;\n"
           "*query-gpu*) echo '0, GPU-a, NVIDIA H100, 81559, 5000'; echo '1, GPU-b, NVIDIA H100, "
           "81559, 4';;\n"
           "*) echo 'GPU-a, "
        << rank.pid << ", 4096'; echo 'GPU-a, 4194304, 512';;\nesac\n";
    std::filesystem::permissions(fake.path() + "/nvidia-smi", std::filesystem::perms(0755));
    const auto with_driver = [&](const std::vector<std::string>& words) {
        std::vector<std::string> all = command(state, words);
        all.insert(all.begin() + 1, "PATH=" + fake.path() + ":" + std::getenv("PATH"));
        const TemporaryFolder output;
        JobProcess process(output, all);
        const int code = process.wait();
        return ProgramEnd{code, process.out(), process.err()};
    };
    const ProgramEnd listed = with_driver({"ps", "--devices", "--json"});
    INFO(listed.err);
    REQUIRE(listed.code == 0);
    const auto host = nlohmann::json::parse(listed.out).at("hosts").at(0);
    CHECK(host.at("gpus").at(0).at("used_bytes") == int64_t{5000} << 20);
    CHECK(host.at("gpus").at(1).at("index") == 1);
    REQUIRE(host.at("processes").size() == 2);
    const auto& own = host.at("processes").at(0);
    CHECK(own.at("pid") == rank.pid);
    CHECK(own.at("job_id") == "gpus");
    CHECK(own.at("rank").get<int>() >= 0);
    CHECK(own.at("gpus").at(0).at("bytes") == int64_t{4096} << 20);
    CHECK(host.at("processes").at(1).at("own") == false);
    const ProgramEnd table = with_driver({"ps", "--devices"});
    CHECK_THAT(table.out, Catch::Contains("gpus, rank ") && Catch::Contains("4.00 GiB") &&
                              Catch::Contains("not visible here") && Catch::Contains("free"));

    const ProgramEnd checked = with_driver({"hosts", "check"});
    CHECK(checked.code == 67);
    CHECK_THAT(checked.out, Catch::Contains("580.65.06") && Catch::Contains("1 NVLink ") &&
                                Catch::Contains("PCIe 5 x8 of x16") &&
                                Catch::Contains(std::to_string(rank.pid) + " of "));
    CHECK_THAT(checked.err,
               Catch::Contains("GPU 1, NVIDIA H100: ECC could not correct 3 errors in its memory"));

    const std::string place = "localhost:" + std::to_string(rank.pid);
    const ProgramEnd unasked = with_driver({"stop", "--pid", place});
    CHECK(unasked.code == 64);
    CHECK_THAT(unasked.err, Catch::Contains("give --yes") && Catch::Contains("of job gpus") &&
                                Catch::Contains("holds GPU 0 (4.00 GiB)"));
    CHECK(name_process(rank.pid) == rank);
    CHECK(with_driver({"stop", "--pid", "localhost:4194304", "--yes"}).code == 64);
    const ProgramEnd ended = with_driver({"stop", "--pid", place, "--yes", "--json"});
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(nlohmann::json::parse(ended.out).at("ended") == true);
    CHECK_FALSE(name_process(rank.pid) == rank);
}

TEST_CASE("hostile job ids reach no file and no process") {
    TemporaryFolder state;
    for (const char* id : {"..", "../../etc", "/", "a b", "$(touch x)", "-x", "\x1b[2J"}) {
        for (const char* verb : {"stop", "logs"}) {
            INFO(verb << " " << id);
            CHECK(stop_run(state, {verb, "--", id}).code == 64);
        }
    }
}
