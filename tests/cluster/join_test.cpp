// Agents that join by themselves, each in its own network namespace, without sshd: the command
// lines of launcher and agents, the handling of the token, and strangers that connect.
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

using Words = std::vector<std::string>;

const std::string kToken = "canary-5f3a9b0c7d1e2468ace0";

std::string token_file(const TemporaryFolder& folder, const std::string& token) {
    const std::string path = folder.path() + "/token";
    std::ofstream(path) << token << "\n";
    ::chmod(path.c_str(), 0600);
    return path;
}

// Returns the number of other processes whose FILE in /proc contains the token.
int processes_that_show(const std::string& file) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const auto pid = parse_int(entry.path().filename().string());
        if (!pid || *pid == ::getpid()) continue;
        if (mentions(process_file(static_cast<pid_t>(*pid), file), kToken)) ++count;
    }
    return count;
}

}  // namespace

TEST_CASE("agents join a job from other hosts, and its token reaches nobody else") {
    const RigHosts hosts(2, "agents that join from network namespaces");
    if (!hosts.usable()) return;
    const TemporaryFolder folder;
    const std::string token = token_file(folder, kToken);
    const Words listening = {kDslaunch,
                             "--launcher",
                             "join",
                             "--listen",
                             "10.91.7.1:29400",
                             "--token-file",
                             token,
                             "--nnodes",
                             "2",
                             "--num_gpus",
                             "2"};
    const auto agent = [&](int node, const Words& more, const std::string& file) {
        Words words = {kDslaunch, "agent", "--join", "10.91.7.1:29400", "--token-file", file};
        words.insert(words.end(), more.begin(), more.end());
        return hosts.on(node, words);
    };
    SECTION("whoever starts first, and a scan in between disturbs nothing") {
        const TemporaryFolder a, b, c;
        JobProcess second(b, agent(2, {"--node", "1"}, token));  // started before the launcher
        Words words = listening;
        const std::string output = folder.path() + "/run";
        words.insert(words.end(),
                     {"--output", output, "--env", "MINE=yes", "sh", "-c",
                      "echo $RANK $MASTER_ADDR $MINE ${DSLAUNCH_TOKEN-none}; sleep 1"});
        JobProcess job(folder, hosts.on(0, words));
        JobProcess scan(c, hosts.on(1, {"sh", "-c",
                                        "for i in $(seq 60); do (echo GET / >/dev/tcp/10.91.7.1/"
                                        "29400) 2>/dev/null || true; done"}));
        REQUIRE(
            wait_until([&] { return mentions(job.err(), "agent 1 of 2: node1 is 10.91.7.3"); }));
        CHECK(processes_that_show("cmdline") == 0);
        JobProcess first(a, agent(1, {"--node", "0"}, token));
        REQUIRE(wait_until([&] { return mentions(job.out(), "[node1:3] 3"); }));
        CHECK(processes_that_show("cmdline") == 0);
        CHECK(processes_that_show("environ") == 0);
        CHECK(job.wait() == 0);
        INFO(job.err());
        for (const char* line : {"[node0:0] 0 10.91.7.2 yes none\n", "[node0:1] 1 10.91.7.2",
                                 "[node1:2] 2 10.91.7.2", "[node1:3] 3 10.91.7.2"}) {
            CHECK(mentions(job.out(), line));
        }
        CHECK(first.wait() == 0);
        CHECK(second.wait() == 0);
        scan.wait();
        const std::string record = folder.read("run/run.json");
        CHECK_FALSE(record.empty());
        CHECK_FALSE(mentions(record, kToken));
        CHECK_FALSE(mentions(job.err(), kToken));
    }
    SECTION("agents join again for the next attempt, and one that is gone is replaced") {
        const TemporaryFolder a, b, c;
        Words words = listening;
        words.insert(words.end(),
                     {"--max-restarts", "2", "sh", "-c",
                      "echo attempt $TORCHELASTIC_RESTART_COUNT on $MASTER_ADDR; "
                      "case $TORCHELASTIC_RESTART_COUNT in 0) [ $RANK = 3 ] && exit 5; sleep 60;; "
                      "1) touch " +
                          folder.path() + "/second; sleep 60;; esac"});
        JobProcess job(folder, hosts.on(0, words));
        JobProcess first(a, agent(1, {"--node", "0"}, token));
        JobProcess second(b, agent(2, {"--node", "1"}, token));
        REQUIRE(wait_until([&] { return std::filesystem::exists(folder.path() + "/second"); }));
        second.signal(SIGKILL);  // the agent ends the ranks, and no agent is left there
        JobProcess third(c, agent(2, {"--node", "1"}, token));
        CHECK(job.wait() == 0);
        INFO(job.err());
        CHECK(mentions(job.err(), "rank 3 on host node1 failed first: exit code 5"));
        CHECK(mentions(job.err(), "host node1 is lost: the process that guards its agent"));
        CHECK(mentions(job.err(), "restart 2 of 2"));
        CHECK(mentions(job.out(), "[node1:3] attempt 2 on 10.91.7.2"));
        CHECK(first.wait() == 0);
        CHECK(third.wait() == 0);
    }
    SECTION("an agent with another token is turned away, and the launcher says so in the end") {
        bool both_came = false;
        // On a busy machine, the two agents, which come one after the other, may take longer than
        // the first limit.
        for (const std::string limit_s : {"3", "30"}) {
            const TemporaryFolder a, b, other;
            Words words = listening;
            words.insert(words.end(), {"--connect-timeout", limit_s, "true"});
            JobProcess job(folder, hosts.on(0, words));
            // The agent tries again, because a stranger may have refused it, but only for
            // --connect-timeout.
            JobProcess wrong(a, agent(1, {"--connect-timeout", "1"},
                                      token_file(other, "another token, long enough")));
            const int refused = wrong.wait();
            JobProcess right(b, agent(2, {}, token));
            CHECK(job.wait() == 67);
            INFO(job.err());
            both_came = mentions(job.err(), "node1: no agent joined as node 1 within " + limit_s +
                                                " s (1 of 2 agents joined");
            if (!both_came) continue;
            CHECK(refused == 67);
            CHECK(mentions(wrong.err(), "does not have this agent's token"));
            CHECK(mentions(job.err(), "node0 from 10.91.7.3:"));
            CHECK(mentions(job.err(), "10.91.7.2:"));
            CHECK(right.wait() == 0);
            break;
        }
        CHECK(both_came);
    }
    SECTION("a launcher that is killed ends its agents and their ranks") {
        const TemporaryFolder a, b;
        Words words = listening;
        words.insert(words.end(), {"sh", "-c",
                                   "trap '' TERM HUP INT; echo $$ >> " + folder.path() +
                                       "/pids; while :; do sleep 0.05; done"});
        JobProcess job(folder, hosts.on(0, words));
        JobProcess first(a, agent(1, {}, token));
        JobProcess second(b, agent(2, {}, token));
        REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 4; }));
        const auto workers = recorded_processes(folder);
        const auto began = Steady::now();
        job.signal(SIGKILL);
        REQUIRE(wait_until([&] { return all_gone(workers); }, kGoneMaxMs));
        std::printf("join: launcher killed, all gone after %.0f ms\n",
                    to_milliseconds(Steady::now() - began));
        CHECK(first.wait() >= 0);
        CHECK(second.wait() >= 0);
    }
    SECTION("without a token nothing listens, and the message says how to make one") {
        Words words = {kDslaunch,         "--launcher", "join", "--listen",
                       "10.91.7.1:29400", "--nnodes",   "2",    "true"};
        JobProcess job(folder, hosts.on(0, words));
        CHECK(job.wait() == 64);
        CHECK(mentions(job.err(), "openssl rand -hex 32"));
    }
}

TEST_CASE("torchrun's form, one command line on every node, meets at its endpoint") {
    const RigHosts hosts(2, "agents that join from network namespaces");
    if (!hosts.usable()) return;
    const TemporaryFolder folder, other;
    const Words words = {"env",
                         "DSLAUNCH_TOKEN=" + kToken,
                         kDslaunch,
                         "--nnodes=2",
                         "--nproc_per_node=2",
                         "--rdzv_backend=c10d",
                         "--rdzv_id=meet",
                         "--rdzv_endpoint=10.91.7.2:29512",
                         "sh",
                         "-c",
                         "echo $RANK of $WORLD_SIZE in $TORCHELASTIC_RUN_ID"};
    JobProcess second(other, hosts.on(2, words));
    JobProcess first(folder, hosts.on(1, words));
    CHECK(first.wait() == 0);
    INFO(first.err());
    for (const char* line : {"[node0:0] 0 of 4 in meet\n", "[node0:1] 1 of 4 in meet\n",
                             "[node1:2] 2 of 4 in meet\n", "[node1:3] 3 of 4 in meet\n"})
        CHECK(mentions(first.out(), line));
    CHECK(second.wait() == 0);
}

TEST_CASE("--no_ssh runs one command line on every node, and node 0's own code is the job's") {
    const RigHosts hosts(2, "agents that join from network namespaces");
    if (!hosts.usable()) return;
    const TemporaryFolder folder, other;
    const auto node = [&](int rank, const Words& target) {
        Words words = {"env",           "DSLAUNCH_TOKEN=" + kToken,
                       kDslaunch,       "--no_ssh",
                       "--nnodes",      "2",
                       "--node_rank",   std::to_string(rank),
                       "--master_addr", "10.91.7.2",
                       "--master_port", "29511"};
        words.insert(words.end(), target.begin(), target.end());
        return hosts.on(rank + 1, words);
    };
    const Words target = {
        "sh", "-c", "echo $RANK $MASTER_ADDR ${DSLAUNCH_TOKEN-none}; sleep $RANK; exit $RANK"};
    JobProcess second(other, node(1, target));
    JobProcess first(folder, node(0, target));
    CHECK(first.wait() == 1);
    INFO(first.err());
    CHECK(mentions(first.out(), "[node0:0] 0 10.91.7.2 none\n"));
    CHECK(mentions(first.out(), "[node1:1] 1 10.91.7.2 none\n"));
    CHECK(mentions(first.err(), "rank 1 on host node1 failed first"));
    CHECK(second.wait() == 0);
}
