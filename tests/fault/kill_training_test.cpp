// A training job that is interrupted, or whose worker, agent or launcher is killed: weights are
// saved on request, the culprit is named, and nothing is left running.
#include <cstdio>
#include <filesystem>

#include "support/catch.h"
#include "support/endless_job.h"

namespace dslaunch::test {

using namespace launch;
namespace {

double elapsed_ms(Steady::time_point from) {
    return std::chrono::duration<double, std::milli>(Steady::now() - from).count();
}

// Checks that everything of the job is gone within LIMIT_MS; prints how long it took.
void check_gone(const std::vector<ProcessName>& all, const char* what, int limit_ms) {
    const auto began = Steady::now();
    CHECK(wait_until([&] { return all_gone(all) && descendants(::getpid()).empty(); }, limit_ms));
    std::printf("%s: all gone after %.0f ms\n", what, elapsed_ms(began));
}

// Sends the signals apart: two at once would be one, since the kernel does not count them.
void press_twice(const JobProcess& process) {
    process.signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    process.signal(SIGINT);
}

// True once the process takes signals itself; before that, they are the system's.
bool holds_interrupts(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("SigBlk:", 0) == 0)
            return ((std::stoull(line.substr(7), nullptr, 16) >> (SIGINT - 1)) & 1U) != 0;
    return false;
}

}  // namespace

TEST_CASE("Ctrl-C, TERM and USR1 save the weights of the steps that were done, and end the job") {
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
        EndlessJob job;
        job.await_steps();
        const auto all = descendants(job.process.pid());
        const auto began = Steady::now();
        job.process.signal(signal);
        const int code = job.process.wait(30'000);
        INFO("signal " << signal << "\n" << job.process.err());
        CHECK(code == 76);
        std::printf("signal %d: saved and ended after %.0f ms\n", signal, elapsed_ms(began));
        check_gone(all, "asked to end", 1'000);
        CHECK(job.process.out().find("ended early, as asked") != std::string::npos);
        const auto lines = job.metrics();
        REQUIRE(!lines.empty());
        const Json last = Json::parse(lines.back());
        CHECK(job.process.out().find("trained " + last.at("step").dump() + " steps") !=
              std::string::npos);
        CHECK(std::filesystem::file_size(job.folder.path() + "/out/model.safetensors") > 47392 * 4);
        CHECK(std::filesystem::file_size(job.folder.path() + "/out/model.pt") > 47392 * 4);
    }
}

TEST_CASE("a signal before the first step ends the job too") {
    for (const int wait_ms : {0, 20, 50, 100, 200, 300, 450, 600}) {
        EndlessJob job;
        REQUIRE(wait_until([&] { return holds_interrupts(job.process.pid()); }, 10'000));
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        const auto began = Steady::now();
        job.process.signal(SIGINT);
        const int code = job.process.wait(32'000);
        INFO("after " << wait_ms << " ms\n" << job.process.err());
        CHECK(code == 76);
        CHECK(elapsed_ms(began) < 30'000);
        CHECK(wait_until([] { return descendants(::getpid()).empty(); }, 2'000));
    }
}

TEST_CASE("a second Ctrl-C ends a training job at once") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    press_twice(job.process);
    const auto began = Steady::now();
    CHECK(job.process.wait(3'000) == 76);
    CHECK(elapsed_ms(began) < 2'000);
    check_gone(all, "second Ctrl-C", 1'000);
}

TEST_CASE("a killed worker ends the training job, and it is named") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    REQUIRE(signal_process(workers[2], SIGKILL));
    const auto began = Steady::now();
    const int code = job.process.wait(5'000);
    INFO(job.process.err());
    CHECK(code == 68);
    CHECK(elapsed_ms(began) < 3'000);
    CHECK(job.process.err().find("failed first: killed by SIGKILL") != std::string::npos);
    CHECK(job.process.err().find(std::to_string(workers[2].pid)) != std::string::npos);
    check_gone(all, "worker killed", 1'000);
    CHECK_FALSE(std::filesystem::exists(job.folder.path() + "/out/model.safetensors"));
}

TEST_CASE("a stopped worker that is killed later still ends the job") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    REQUIRE(signal_process(workers[0], SIGSTOP));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    press_twice(job.process);
    const int code = job.process.wait(5'000);
    INFO(job.process.err());
    CHECK(code == 76);
    check_gone(all, "one rank stopped, two Ctrl-C", 1'000);
}

TEST_CASE("a rank that stops is named when the time limit is over, with where it was") {
    EndlessJob job({"--timeout", "5"});
    job.await_steps();
    const auto all = descendants(job.process.pid());
    const auto workers = job.processes("dsworker");
    REQUIRE(workers.size() == 4);
    const ProcessName victim = workers[3];
    REQUIRE(signal_process(victim, SIGSTOP));
    const auto began = Steady::now();
    const int code = job.process.wait(20'000);
    const std::string report = job.process.err();
    INFO(report);
    CHECK(code == 69);
    CHECK(elapsed_ms(began) > 4'800);
    CHECK(elapsed_ms(began) < 8'000);
    const size_t at = report.find("behind is rank ");
    REQUIRE(at != std::string::npos);
    const std::string line = report.substr(at, report.find('\n', at) - at);
    CHECK(line.find("(pid " + std::to_string(victim.pid) + "), silent for ") != std::string::npos);
    CHECK(line.find("instructions done, the others") != std::string::npos);
    check_gone(all, "one rank stopped, time limit over", 1'000);
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
    const int code = job.process.wait(10'000);
    INFO(job.process.err());
    CHECK(code == 76);
    CHECK(elapsed_ms(began) >= 500);
    CHECK(elapsed_ms(began) < 4'000);
    check_gone(all, "one rank stopped, grace time over", 1'000);
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
            above_workers |= command_line(below).find("dsworker") != std::string::npos;
            above_agents |= command_line(below).find("--stdio") != std::string::npos;
        }
        if (above_workers && !above_agents) agents.push_back(each);
    }
    REQUIRE(agents.size() == 2);
    REQUIRE(signal_process(agents[1], SIGKILL));
    const int code = job.process.wait(5'000);
    INFO(job.process.err());
    CHECK(code == 67);
    CHECK(job.process.err().find("is lost") != std::string::npos);
    check_gone(all, "agent killed", 1'000);
}

TEST_CASE("a killed launcher takes its training job along") {
    EndlessJob job;
    job.await_steps();
    const auto all = descendants(job.process.pid());
    REQUIRE(all.size() >= 6);
    job.process.signal(SIGKILL);
    CHECK(job.process.wait(1'000) == 128 + SIGKILL);
    check_gone(all, "launcher killed", 2'000);
}

}  // namespace dslaunch::test
