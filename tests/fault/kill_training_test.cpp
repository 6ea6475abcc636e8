// A training job that is interrupted, or whose worker, agent or launcher is killed. The weights are
// saved on request, the report names the culprit, and no process is left.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "endless_job.h"
#include "support/catch.h"
#include "support/job_end.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// The longest time that a job should need to end.
constexpr double kEndGoalMs = 30'000;

// Returns the scheduling policies of PROCESS's threads that are not the usual one. Raises
// THREADS_MAX to the number of its threads.
std::vector<int> odd_policies(const ProcessName& process, size_t& threads_max) {
    std::vector<int> odd;
    size_t threads = 0;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(
             "/proc/" + std::to_string(process.pid) + "/task", gone)) {
        const int policy = ::sched_getscheduler(std::stoi(entry.path().filename().string()));
        if (policy > SCHED_OTHER) odd.push_back(policy);
        ++threads;
    }
    threads_max = std::max(threads_max, threads);
    return odd;
}

}  // namespace

TEST_CASE("Ctrl-C, TERM and USR1 save the weights of the steps that were done, and end the job") {
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
        EndlessJob job;
        job.await_steps();
        const auto all = descendants(job.process.pid());
        const auto began = Steady::now();
        job.process.signal(signal);
        const int code = job.process.wait();
        INFO("signal " << signal << "\n" << job.process.err());
        CHECK(code == 76);
        std::printf("signal %d: saved and ended after %.0f ms\n", signal,
                    milliseconds_since(began));
        check_gone(all, "asked to end");
        const auto lines = job.metrics();
        REQUIRE(!lines.empty());
        const Json last = Json::parse(lines.back());
        const std::string step = last.at("step").dump();
        CHECK(job.process.out().find("stopped at step " + step + " of ") != std::string::npos);
        for (const std::string& told :
             {std::string(": saving to "), "step " + step + " is saved; go on with: dslaunch ",
              std::string(" --resume\n")})
            CHECK(job.process.err().find(told) != std::string::npos);
        CHECK(std::filesystem::file_size(job.folder.path() + "/out/model.safetensors") > 47392 * 4);
        CHECK(std::filesystem::file_size(job.folder.path() + "/out/model.pt") > 47392 * 4);
    }
}

TEST_CASE("a signal before the first step ends the job too") {
    for (const int wait_ms : {0, 20, 50, 100, 200, 300, 450, 600}) {
        EndlessJob job({"--grace", "600"});
        REQUIRE(wait_until([&] { return holds_signal(job.process.pid(), SIGINT); }));
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        job.process.signal(SIGINT);
        const int code = job.process.wait();
        INFO("after " << wait_ms << " ms\n" << job.process.err());
        CHECK(code == 76);
        CHECK(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
        if (!job.metrics().empty()) continue;
        CHECK(job.process.err().find(": saving to ") == std::string::npos);
        if (job.process.err().find("every rank has ended") != std::string::npos)
            CHECK(job.process.err().find("so nothing was trained or saved") != std::string::npos);
    }
}

TEST_CASE("a second Ctrl-C ends a training job at once") {
    EndlessJob job({"--grace", "3600"});
    job.await_steps();
    const auto all = descendants(job.process.pid());
    press_twice(job.process.pid());
    const auto began = Steady::now();
    CHECK(job.process.wait() == 76);
    CHECK(milliseconds_since(began) < limit_ms(kEndGoalMs));
    check_gone(all, "second Ctrl-C");
}

TEST_CASE("no thread of a rank waits for idle time, without which its process could not end") {
    // The file is so large that the rank is still hashing it while this test looks at its threads.
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/gpt.pt";
    JobProcess made(folder, {kDslaunch, "model", "new", "gpt", "--vocab", "65536", "--width", "256",
                             "--heads", "4", "--layers", "1", "--context", "32", "-o", model});
    REQUIRE(made.wait() == 0);
    JobProcess job(folder, {kDslaunch, "--num_gpus", "1", "--device", "cpu", model, "--data",
                            fixture_path("data/kjv.u16.bin"), "--context", "32", "--micro-batch",
                            "1", "--steps", "1", "--output", folder.path() + "/out"});
    size_t threads = 0;
    int code = -1;
    while (code < 0) {
        for (const ProcessName& process : descendants(job.pid()))
            CHECK(odd_policies(process, threads).empty());
        code = job.wait(1);
    }
    INFO(job.err());
    CHECK(code == 0);
    CHECK(threads > 2);
}

TEST_CASE("a killed worker ends the training job, and it is named") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    REQUIRE(signal_process(workers[2], SIGKILL));
    const auto began = Steady::now();
    const int code = job.process.wait();
    INFO(job.process.err());
    CHECK(code == 68);
    CHECK(milliseconds_since(began) < limit_ms(kEndGoalMs));
    CHECK(job.process.err().find("failed first: killed by SIGKILL") != std::string::npos);
    for (const char* told : {"SIGKILL was sent from outside", "/out/logs/rank-",
                             "no checkpoint was saved, so the next run starts at step 1"})
        CHECK(job.process.err().find(told) != std::string::npos);
    CHECK(job.process.err().find(std::to_string(workers[2].pid)) != std::string::npos);
    check_gone(all, "worker killed");
    CHECK_FALSE(std::filesystem::exists(job.folder.path() + "/out/model.safetensors"));
}

TEST_CASE("a stopped worker that is killed later still ends the job") {
    EndlessJob job({"--grace", "3600"});
    job.await_steps();
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    REQUIRE(signal_process(workers[0], SIGSTOP));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    press_twice(job.process.pid());
    // The wait must not last for the grace time, which the stopped rank would use up.
    const int code = job.process.wait();
    INFO(job.process.err());
    CHECK(code == 76);
    check_gone(all, "one rank stopped, two Ctrl-C");
}

TEST_CASE("a rank that stops is named when the time limit is over, with where it was") {
    const TimedJob timed = start_with_timeout();
    EndlessJob& job = *timed.job;
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    const ProcessName victim = workers[3];
    REQUIRE(signal_process(victim, SIGSTOP));
    const auto began = Steady::now();
    const int code = job.process.wait();
    const std::string report = job.process.err();
    INFO(report);
    CHECK(code == 69);
    CHECK(milliseconds_since(began) < 1e3 * timed.timeout_s + limit_ms(kEndGoalMs));
    const size_t at = report.find(" is behind");
    REQUIRE(at != std::string::npos);
    const size_t begin = report.rfind('\n', at) + 1;
    const std::string line = report.substr(begin, report.find('\n', at) - begin);
    CHECK(line.starts_with("  rank "));
    CHECK(line.find("(pid " + std::to_string(victim.pid) +
                    ") is behind, and has sent no heartbeat for ") != std::string::npos);
    CHECK(line.find(" instructions, and the other ranks ") != std::string::npos);
    check_gone(all, "one rank stopped, time limit over");
}

TEST_CASE("a rank that cannot save in the grace time is ended with the rest") {
    EndlessJob job({"--grace", "0.5"});
    job.await_steps();
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    REQUIRE(signal_process(workers[1], SIGSTOP));
    const auto began = Steady::now();
    job.process.signal(SIGTERM);
    const int code = job.process.wait();
    INFO(job.process.err());
    CHECK(code == 76);
    CHECK(milliseconds_since(began) >= 500);
    CHECK(milliseconds_since(began) < limit_ms(kEndGoalMs));
    check_gone(all, "one rank stopped, grace time over");
    CHECK_FALSE(std::filesystem::exists(job.folder.path() + "/out/model.safetensors"));
}

TEST_CASE("a killed agent ends the training job, and its host is named") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    // The agents are the innermost processes of `agent --stdio` above the workers.
    std::vector<ProcessName> agents;
    for (const ProcessName& each : job.processes("--stdio")) {
        bool above_workers = false;
        bool above_agents = false;
        for (const ProcessName& below : descendants(each.pid)) {
            above_workers |=
                process_file(below.pid, "cmdline").find("dsworker") != std::string::npos;
            above_agents |= process_file(below.pid, "cmdline").find("--stdio") != std::string::npos;
        }
        if (above_workers && !above_agents) agents.push_back(each);
    }
    REQUIRE(agents.size() == 2);
    REQUIRE(signal_process(agents[1], SIGKILL));
    const int code = job.process.wait();
    INFO(job.process.err());
    CHECK(code == 67);
    CHECK(job.process.err().find("is lost") != std::string::npos);
    // The launcher sees the end of the agent itself; it does not have to conclude it from silence.
    CHECK(job.process.err().find("has sent nothing") == std::string::npos);
    check_gone(all, "agent killed");
}

// Gloo writes to its sockets without MSG_NOSIGNAL. If SIGPIPE ended a rank, the report would blame
// this rank, not the host that was lost.
TEST_CASE("a write to a peer that is gone does not end a rank by SIGPIPE") {
    EndlessJob job;
    job.await_steps();
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    for (const ProcessName& worker : workers) REQUIRE(signal_process(worker, SIGPIPE));
    const size_t done = job.metrics().size();
    int code = -1;
    REQUIRE(wait_until([&] {
        code = job.process.wait(1);
        return code >= 0 || job.metrics().size() > done + 3;
    }));
    INFO(job.process.err());
    REQUIRE(code == -1);
    press_twice(job.process.pid());
    CHECK(job.process.wait() == 76);
}

TEST_CASE("a killed launcher takes its training job along") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    REQUIRE(all.size() >= 6);
    job.process.signal(SIGKILL);
    CHECK(job.process.wait() == 128 + SIGKILL);
    check_gone(all, "launcher killed");
}

}  // namespace dslaunch::test
