// Jobs that continue with fewer hosts: hosts that are away are left out, and hosts that came back
// join at the next restart. Each host is a network namespace with a real sshd.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"
#include "support/train_job.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

// The hosts n1, n2, n3 with two slots each.
class Hosts : public RigHosts {
  public:
    Hosts() : RigHosts(3, "elastic jobs over network namespaces") {
        if (usable()) write_file(config("hostfile"), "n[1-3] slots=2\n");
    }
    // Returns true if the launcher's host reaches the sshd of HOST. After a link is restored, this
    // means that HOST's network address is known again.
    [[nodiscard]] bool answers(int host) const {
        return run(0, {"timeout", "1", "bash", "-c",
                       "exec 3<>/dev/tcp/n" + std::to_string(host) + "/22"}) == 0;
    }
    // Returns the command of a job with OPTIONS, whose last words are the target. The job's state
    // folder is below STATE.
    [[nodiscard]] std::vector<std::string> job(const std::string& state,
                                               const std::vector<std::string>& options) const {
        std::vector<std::string> words = {kDslaunch, "--ssh-config", config("good"), "--hostfile",
                                          config("hostfile")};
        words.insert(words.end(), options.begin(), options.end());
        words = on(0, words);
        words.insert(words.begin(), {"env", "XDG_STATE_HOME=" + state});
        return words;
    }
};

double seconds_since(Steady::time_point from) {
    return to_milliseconds(Steady::now() - from) / 1000;
}

}  // namespace

TEST_CASE("an elastic job begins without a host that is away, and says so") {
    const Hosts hosts;
    if (!hosts.usable()) return;
    hosts.set_link(2, false);
    TemporaryFolder folder;
    const std::vector<std::string> target = {"sh", "-c",
                                             "echo $RANK of $WORLD_SIZE at $MASTER_ADDR"};
    auto options = std::vector<std::string>{"--nnodes", "2:3"};
    options.insert(options.end(), target.begin(), target.end());
    JobProcess job(folder, hosts.job(folder.path(), options));
    CHECK(job.wait() == 0);
    INFO(job.err());
    CHECK(count_of(job.out(), " of 4 at 10.91.7.2") == 4);
    CHECK(count_of(job.err(), "continuing without 1 host") == 1);
    CHECK(count_of(job.err(), "n2: ") == 1);

    TemporaryFolder other;
    options[1] = "3:3";
    JobProcess refused(other, hosts.job(other.path(), options));
    CHECK(refused.wait() == 67);
    CHECK(refused.out().empty());
}

TEST_CASE(
    "over ssh, too, a restart ends what agent and guardian, killed in one moment, have left") {
    const Hosts hosts;
    if (!hosts.usable()) return;
    const TemporaryFolder folder;
    const std::string script =
        "cd " + folder.path() +
        "; case $TORCHELASTIC_RESTART_COUNT in 0) echo $RANK $$ $PPID >> ranks; [ $RANK = 0 ] && "
        "setsid "
        "sh -c \"trap '' TERM INT HUP; echo \\$\\$ >> pids; while :; do sleep 0.05; done\" & "
        "exec sleep 600;; *) for pid in $(cat pids); do grep -qs '^State:.[RSD]' "
        "/proc/$pid/status && echo BESIDE $pid; done; exit 0;; esac";
    JobProcess job(folder, hosts.job(folder.path(), {"--max-restarts", "1", "sh", "-c", script}));
    std::vector<ProcessName> left;
    REQUIRE(wait_until([&] {
        left = recorded_processes(folder);
        return left.size() == 1 && count_of(folder.read("ranks"), "\n") == 6;
    }));
    // The rank's parent is its agent, and the agent's parent is the guardian.
    const auto parent_of = [](pid_t pid) {
        const std::string status = process_file(pid, "status");
        return static_cast<pid_t>(std::stol(status.substr(status.find("\nPPid:") + 6)));
    };
    std::ifstream ranks(folder.path() + "/ranks");
    int rank = -1;
    pid_t pid = 0, agent = 0;
    while (rank != 0) REQUIRE(ranks >> rank >> pid >> agent);
    const std::vector<ProcessName> killed = {name_process(agent), name_process(parent_of(agent))};
    for (const int signal : {SIGSTOP, SIGKILL}) {
        for (const ProcessName& process : killed) signal_process(process, signal);
    }
    const int code = job.wait();
    INFO(job.err() << job.out());
    CHECK(code == 0);
    CHECK(job.out().find("BESIDE") == std::string::npos);
    CHECK(name_process(left.front().pid) != left.front());
    CHECK(count_of(job.err(), "restart 1 of 1") == 1);
    signal_process(left.front(), SIGKILL);
}

TEST_CASE("a lost host is left out of the next attempt and joins again when it is back") {
    const Hosts hosts;
    if (!hosts.usable()) return;
    TemporaryFolder folder;
    // In each attempt, rank 0 writes the world size. The second attempt fails when the file `go`
    // exists; the third succeeds.
    const std::string script = "cd " + folder.path() +
                               "; case $TORCHELASTIC_RESTART_COUNT in 0) echo $$ >> pids;; *) for "
                               "pid in $(cat pids); do grep -qs '^State:.[RSD]' /proc/$pid/status "
                               "&& echo $pid >> beside; done;; esac"
                               "; [ $RANK = 0 ] && echo $TORCHELASTIC_RESTART_COUNT "
                               "$TORCHELASTIC_MAX_RESTARTS $WORLD_SIZE $MASTER_PORT >> attempts; "
                               "case $TORCHELASTIC_RESTART_COUNT in "
                               "0) exec sleep 600;; "
                               "1) while [ ! -e go ]; do sleep 0.05; done; exit 4;; "
                               "2) exit 0;; esac";
    JobProcess job(folder, hosts.job(folder.path(), {"--nnodes", "2:3", "--max-restarts", "3", "sh",
                                                     "-c", script}));
    const auto attempts = [&] { return count_of(folder.read("attempts"), "\n"); };
    REQUIRE(wait_until([&] { return attempts() == 1; }));
    const auto cut = Steady::now();
    hosts.set_link(3, false);
    // The ranks of the lost host may live until their agent's lease ends.
    REQUIRE(wait_until([&] { return attempts() == 2; }));
    std::printf("host cut off: running without it after %.1f s\n", seconds_since(cut));
    hosts.set_link(3, true);
    REQUIRE(wait_until([&] { return hosts.answers(3); }));
    const auto failed = Steady::now();
    std::ofstream(folder.path() + "/go") << "x";
    CHECK(job.wait() == 0);
    std::printf("rank failed: all three hosts ended their next attempt after %.1f s\n",
                seconds_since(failed));
    INFO(job.err());
    std::ifstream file(folder.path() + "/attempts");
    int count = 0, max = 0, world = 0, port = 0;
    const int expected_world[] = {6, 4, 6};
    for (int i = 0; i < 3; ++i) {
        REQUIRE(file >> count >> max >> world >> port);
        CHECK(count == i);
        CHECK(max == 3);
        CHECK(world == expected_world[i]);
        CHECK(port > 0);
    }
    CHECK(folder.read("beside").empty());  // no rank of the first attempt lived on
    CHECK(count_of(job.err(),
                   "the connection to host n3 was lost; before the restart, dslaunch waits") == 1);
    CHECK(count_of(job.err(), "host n3 is lost") == 1);
    CHECK(count_of(job.err(), "restart 1 of 3") == 1);
    CHECK(count_of(job.err(), "restart 2 of 3") == 1);
}

TEST_CASE("a training takes as many hosts as `elasticity` allows, and keeps its batch on fewer") {
    const Hosts hosts;
    if (!hosts.usable()) return;
    const TemporaryFolder folder;
    Json config = fixture_config(fixture_facts("gpt"), 1, 4);
    config.erase("train_micro_batch_size_per_gpu");
    config.erase("gradient_accumulation_steps");
    // 8 rows in micro batches of 2: 1, 2 or 4 ranks can share them, but not the 6 of three hosts.
    config["elasticity"] = {{"enabled", true},
                            {"max_train_batch_size", 8},
                            {"micro_batch_sizes", {2}},
                            {"version", 0.1}};
    const auto run = [&](const std::vector<std::string>& which, int64_t steps) {
        config["dslaunch"]["steps"] = steps;
        std::vector<std::string> options = {"--ssh-config", hosts.config("good"),
                                            "--hostfile",   hosts.config("hostfile"),
                                            "--env",        "OMP_NUM_THREADS=1"};
        options.insert(options.end(), which.begin(), which.end());
        std::vector<std::string> words =
            hosts.on(0, training_command(folder, options, fixture_archive("gpt"), config));
        words.insert(words.begin(), {"env", "XDG_STATE_HOME=" + folder.path() + "/state"});
        JobProcess job(folder, words);
        const int code = job.wait();
        INFO(job.err());
        CHECK(code == 0);
        return job.err();
    };
    const std::string err = run({"--nnodes", "1:3"}, 4);
    CHECK(count_of(err,
                   "2 of 3 hosts are used: the config is valid for 4 ranks, but not for 6 ranks") ==
          1);
    run({"--include", "n3", "--resume"}, 6);  // 2 ranks
    std::ifstream metrics(folder.path() + "/out/metrics.jsonl");
    int64_t steps = 0;
    for (std::string line; std::getline(metrics, line);) {
        const Json row = Json::parse(line);
        if (!row.contains("loss")) continue;
        CHECK(row.at("step") == ++steps);
        CHECK(row.at("samples") == 8 * steps);
    }
    CHECK(steps == 6);
}
