// Kills each process that can be killed, with workers that do not want to end. No process may be
// left.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "join_job.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/man_in_the_middle.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Returns the script of a worker. The worker and its grandchild, started with setsid, record their
// ids and ignore every signal that can be ignored.
std::string stubborn_script(const TemporaryFolder& folder) {
    return "trap '' TERM INT HUP QUIT USR1; echo $$ >> " + folder.path() +
           "/pids; setsid sh -c \"trap '' TERM INT HUP; echo \\$\\$ >> " + folder.path() +
           "/pids; while :; do sleep 0.05; done\" & while :; do sleep 0.05; done";
}

std::string willing_script(const TemporaryFolder& folder) {
    return "echo $$ >> " + folder.path() + "/pids; exec sleep 600";
}

struct RunningJob {
    TemporaryFolder folder;
    JobProcess process;
    std::vector<ProcessName> workers;

    RunningJob(bool stubborn, std::vector<std::string> options = {})
        : process(folder, make_command(stubborn, options)) {
        const size_t expected = stubborn ? 8 : 4;
        REQUIRE(wait_until([&] {
            workers = recorded_processes(folder);
            return workers.size() == expected;
        }));
    }
    std::vector<std::string> make_command(bool stubborn, const std::vector<std::string>& options) {
        std::vector<std::string> command = {kProbe, "hosts=a,b", "workers=2"};
        command.insert(command.end(), options.begin(), options.end());
        command.insert(
            command.end(),
            {"--", "sh", "-c", stubborn ? stubborn_script(folder) : willing_script(folder)});
        return command;
    }
};

// Returns the agents below LAUNCHER, or the guardians if GUARDIANS. The guardians are the
// launcher's children, and the agents are the guardians' children.
std::vector<ProcessName> agents_below(pid_t launcher, bool guardians) {
    std::vector<ProcessName> found;
    for (const ProcessName& process : descendants(launcher)) {
        const std::string line = process_file(process.pid, "cmdline");
        if (line.find("agent") == std::string::npos || line.find("--stdio") == std::string::npos)
            continue;
        if (!descendants(process.pid).empty()) found.push_back(process);
    }
    // A guardian has an agent below it; an agent has only workers.
    std::vector<ProcessName> wanted;
    for (const ProcessName& process : found) {
        bool has_agent_below = false;
        for (const ProcessName& below : descendants(process.pid)) {
            for (const ProcessName& other : found) has_agent_below |= below == other;
        }
        if (has_agent_below == guardians) wanted.push_back(process);
    }
    return wanted;
}

}  // namespace

TEST_CASE("a killed worker ends the job, and the culprit is named") {
    for (const bool stubborn : {false, true}) {
        RunningJob job(stubborn);
        const auto began = Steady::now();
        REQUIRE(signal_process(job.workers.front(), SIGKILL));
        REQUIRE(wait_until([&] { return all_gone(job.workers); }, kGoneMaxMs));
        std::printf("worker killed, %s ranks: all gone after %.1f ms\n",
                    stubborn ? "stubborn" : "willing", milliseconds_since(began));
        CHECK(job.process.wait() == 128 + SIGKILL);
        CHECK(job.process.err().find("killed by SIGKILL") != std::string::npos);
        CHECK(job.process.err().find("failed first") != std::string::npos);
    }
}

TEST_CASE("a killed launcher takes every process of the job along") {
    for (const bool stubborn : {false, true}) {
        RunningJob job(stubborn);
        const auto began = Steady::now();
        job.process.signal(SIGKILL);
        REQUIRE(wait_until([&] { return all_gone(job.workers); }, kGoneMaxMs));
        std::printf("launcher killed, %s ranks: all gone after %.1f ms\n",
                    stubborn ? "stubborn" : "willing", milliseconds_since(began));
    }
}

TEST_CASE("a killed agent or guardian leaves nothing behind and its host is named") {
    for (const bool guardian : {false, true}) {
        RunningJob job(true);
        const auto agents = agents_below(job.process.pid(), guardian);
        REQUIRE(agents.size() == 2);
        const auto began = Steady::now();
        REQUIRE(signal_process(agents.front(), SIGKILL));
        REQUIRE(wait_until([&] { return all_gone(job.workers); }, kGoneMaxMs));
        std::printf("%s killed: all gone after %.1f ms\n", guardian ? "guardian" : "agent",
                    milliseconds_since(began));
        const int code = job.process.wait();
        INFO(job.process.err());
        CHECK(code != 0);
        CHECK(code != -1);
        if (!guardian) {
            CHECK(code == 67);
            CHECK(job.process.err().find("is lost") != std::string::npos);
            // The launcher sees the end of the agent itself; it does not have to conclude it from
            // silence.
            CHECK(job.process.err().find("has sent nothing") == std::string::npos);
        }
    }
}

namespace {

// Kills an agent and its guardian at the same moment. The next agent must end the grandchild that
// the first attempt has left. The agents are started by the command INSIDE, the grandchild by
// SHELL.
void check_both_killed(const std::vector<std::string>& inside, const std::string& shell) {
    const TemporaryFolder agent_folder, next_folder, grandchild;
    JoinJob job("setsid " + shell + " -c \"trap '' TERM INT HUP; echo \\$\\$ > " +
                grandchild.path() + "/pid; while :; do sleep 0.05; done\" & while [ ! -s " +
                grandchild.path() + "/pid ]; do sleep 0.01; done; cat " + grandchild.path() +
                "/pid >> $PIDS; sleep 600");
    std::vector<std::string> agent = job.agent(job.port());
    agent.insert(agent.begin(), inside.begin(), inside.end());
    JobProcess guardian(agent_folder, agent);
    const ProcessName left = job.left();
    kill_with_its_guardian(guardian);
    JobProcess next(next_folder, agent);
    job.check_end(next, left);
}

}  // namespace

// Negative control, done by hand: if an agent does not end earlier processes before it starts
// ranks, the grandchild of the first attempt lives beside the second attempt.
TEST_CASE("a restart ends what agent and guardian, killed in one moment, have left") {
    check_both_killed({}, "sh");
}

// Negative control: without the mount, the agents have no control group. The grandchild, whose
// environment does not name the job, then lives on.
TEST_CASE("what was left without an environment is found by its control group") {
    const std::string mount =
        "mount -t tmpfs none /mnt && mkdir /mnt/group && mount -t cgroup2 none /mnt/group && ";
    const TemporaryFolder folder;
    JobProcess probe(folder, {"unshare", "-m", "sh", "-c",
                              mount + "mkdir /mnt/group/dslaunch-probe && rmdir "
                                      "/mnt/group/dslaunch-probe"});
    if (probe.wait() != 0)
        return report_skipped("processes found by their control group",
                              "no control groups of version 2 can be made here: " + probe.err());
    check_both_killed({"unshare", "-m", "sh", "-c", mount + "exec \"$@\"", "sh"},
                      "env -i PATH=/usr/bin:/bin sh");
}

TEST_CASE("a connection that is lost on one side leaves no two attempts at once") {
    const TemporaryFolder agent_folder, next_folder;
    JoinJob job("echo $$ >> $PIDS; while :; do sleep 0.05; done");
    ManInTheMiddle proxy([&] { return job.port(); });
    JobProcess cut_off(agent_folder, job.agent(proxy.port()));
    const ProcessName left = job.left();
    proxy.cut_launcher_off();
    JobProcess next(next_folder, job.agent(job.port()));
    job.check_end(next, left);
}

TEST_CASE("Ctrl-C gives programs a TERM and the grace time, a second one ends them at once") {
    SECTION("willing ranks end with the TERM") {
        RunningJob job(false, {"grace_ms=600000"});
        job.process.signal(SIGINT);
        CHECK(job.process.wait() == 76);
        CHECK(all_gone(job.workers));
    }
    SECTION("stubborn ones end when the grace time is over") {
        RunningJob job(true, {"grace_ms=300"});
        const auto began = Steady::now();
        job.process.signal(SIGTERM);
        CHECK(job.process.wait() == 76);
        CHECK(milliseconds_since(began) >= 300);
        CHECK(all_gone(job.workers));
    }
    SECTION("a second signal does not wait for it") {
        RunningJob job(true, {"grace_ms=600000"});
        press_twice(job.process.pid());
        CHECK(job.process.wait() == 76);
        CHECK(all_gone(job.workers));
    }
}

TEST_CASE("two jobs at once do not touch each other") {
    RunningJob first(true);
    RunningJob second(false, {"grace_ms=600000"});
    first.process.signal(SIGKILL);
    REQUIRE(wait_until([&] { return all_gone(first.workers); }, kGoneMaxMs));
    for (const ProcessName& worker : second.workers) CHECK(name_process(worker.pid) == worker);
    second.process.signal(SIGINT);
    CHECK(second.process.wait() == 76);
}

TEST_CASE("a job ends with the code that its ranks give") {
    struct Row {
        std::string script;
        int code;
        std::string message;
        int tries_max = 1;
    };
    const Row rows[] = {
        {"exit 0", 0, ""},
        {"[ $RANK != 1 ] || exit 3; exec sleep 60", 3,
         "rank 1 on host localhost failed first: exit code 3"},
        {"[ $RANK != 2 ] || kill -SEGV $$; exec sleep 60", 128 + SIGSEGV, "SIGSEGV"},
        // 75 is the code of a rank that only lost its peer. The launcher then waits for the other
        // rank's end, but only 50 ms. A busy machine may use up most of this time.
        {"[ $RANK != 0 ] || exit 75; [ $RANK != 1 ] || { sleep 0.02; exit 9; }; exec sleep 60", 9,
         "rank 1", /*tries_max=*/20},
    };
    for (const Row& row : rows) {
        int code = -1;
        std::string err;
        for (int i = 0; i < row.tries_max && code != row.code; ++i) {
            TemporaryFolder folder;
            JobProcess job(folder, {kProbe, "workers=3", "--", "sh", "-c", row.script});
            code = job.wait();
            err = job.err();
        }
        INFO(row.script << "\n" << err);
        CHECK(code == row.code);
        CHECK(err.find(row.message) != std::string::npos);
    }
}

TEST_CASE("a program whose port was taken is started once more, and only once") {
    TemporaryFolder folder;
    const std::string counts = "echo $MASTER_PORT >> " + folder.path() + "/ports; ";
    const std::string clash = "echo 'bind: Address already in use' >&2; exit 1";
    SECTION("the second time it works") {
        JobProcess job(folder, {kProbe, "--", "sh", "-c",
                                counts + "[ $(wc -l < " + folder.path() +
                                    "/ports) -gt 1 ] && exit 0; " + clash});
        CHECK(job.wait() == 0);
        CHECK(job.err().find("another process took MASTER_PORT") != std::string::npos);
    }
    SECTION("it never works") {
        JobProcess job(folder, {kProbe, "--", "sh", "-c", counts + clash});
        CHECK(job.wait() == 1);
        const std::string ports = folder.read("ports");
        CHECK(std::count(ports.begin(), ports.end(), '\n') == 2);
    }
}

TEST_CASE("a descendant that a finished rank leaves behind is ended with the job") {
    TemporaryFolder folder;
    JobProcess job(folder, {kProbe, "--", "sh", "-c",
                            "setsid sh -c 'echo $$ >> " + folder.path() +
                                "/pids; exec sleep 600' & while [ ! -e " + folder.path() +
                                "/go ]; do sleep 0.02; done; exit 0"});
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 1; }));
    const auto left = recorded_processes(folder);
    std::ofstream(folder.path() + "/go") << "x";
    CHECK(job.wait() == 0);
    CHECK(all_gone(left));
}
