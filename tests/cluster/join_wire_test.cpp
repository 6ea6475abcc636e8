// A man in the middle between a launcher and its agent. He lets the handshake pass; then he
// changes, inserts, drops or replays a frame, or only listens. Stand-ins for srun and mpirun start
// the agent so that it connects through him. Negative control, done by hand: with channels that
// pass the bytes unchanged, the canary is on the wire and the agent obeys a changed frame.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "cluster/promise.h"
#include "launch/plan/join_token.h"
#include "support/man_in_the_middle.h"

namespace dslaunch::test {
namespace {

constexpr int kLongMs = 120'000;
const std::string kCanary = "hf_canary_9f8e7d6c5b4a39281706";
const std::string kAnswer = "answer_of_the_rank_1a2b3c4d5e6f";

// Starts the agents that the arguments name, as srun and mpirun do, but makes them connect to the
// proxy. Writes the launcher's port to a file for the proxy.
constexpr const char* kStandIn = R"(#!/bin/sh
agent=
run() { [ -n "$agent" ] && { $agent & }; agent=; }
while [ $# -gt 0 ]; do
    case "$1" in
    */dslaunch) agent="$1" ;;
    --join)
        printf %s "${2##*:}" >"$WIRE_FOLDER/port.part"
        mv "$WIRE_FOLDER/port.part" "$WIRE_FOLDER/port"
        agent="$agent --join $WIRE_PROXY"
        shift ;;
    :) run ;;
    *) [ -n "$agent" ] && agent="$agent $1" ;;
    esac
    shift
done
run
wait
)";

// A job of one rank, whose agent connects through a man in the middle.
class WiredJob {
  public:
    WiredJob(const std::string& launcher, HarmPlan plan)
        : middle_([this] { return launcher_port(); }, plan) {
        const std::string bin = folder_.path() + "/bin";
        std::filesystem::create_directory(bin);
        for (const char* name : {"srun", "mpirun"}) {
            std::ofstream(bin + "/" + name) << kStandIn;
            ::chmod((bin + "/" + name).c_str(), 0755);
        }
        const std::string token = folder_.path() + "/token";
        std::ofstream(token) << launch::make_token() << "\n";
        ::chmod(token.c_str(), 0600);
        std::ofstream(folder_.path() + "/hostfile") << "localhost slots=1\n";
        const std::string proxy = fmt::format("127.0.0.1:{}", middle_.port());
        Words words = {"env",
                       "PATH=" + bin + ":" + std::getenv("PATH"),
                       "WIRE_FOLDER=" + folder_.path(),
                       "WIRE_PROXY=" + proxy,
                       "HF_TOKEN=" + kCanary,
                       "SLURMD_NODENAME=localhost",
                       "SLURM_JOB_ID=1",
                       "SLURM_JOB_NODELIST=localhost",
                       "SLURM_TASKS_PER_NODE=1",
                       kDslaunch,
                       "--launcher",
                       launcher,
                       "--num_gpus",
                       "1"};
        if (launcher == "join") {
            const int port = listen_on_loopback().port;  // the port is free again
            std::ofstream(folder_.path() + "/port") << port;
            words = words + Words{"--listen",     fmt::format("127.0.0.1:{}", port),
                                  "--nnodes",     "1",
                                  "--token-file", token};
        } else {
            words = words + Words{"--hostfile", folder_.path() + "/hostfile", "--force_multi"};
        }
        words = words + Words{"--env", "HF_TOKEN", "sh", "-c",
                              "echo $HF_TOKEN >" + folder_.path() +
                                  "/ran; for i in 1 2 3 4 5; do "
                                  "echo " +
                                  kAnswer + "; sleep 0.1; done"};
        job_ = std::make_unique<JobProcess>(folder_, words);
        if (launcher != "join") return;
        agent_ = std::make_unique<JobProcess>(
            agent_folder_, Words{kDslaunch, "agent", "--join", proxy, "--token-file", token,
                                 "--connect-timeout", "60"});
    }

    int wait() {
        const int code = job_->wait(kLongMs);
        if (agent_) static_cast<void>(agent_->wait(kLongMs));
        return code;
    }
    [[nodiscard]] const ManInTheMiddle& middle() const { return middle_; }
    [[nodiscard]] std::string ran() const { return folder_.read("ran"); }
    [[nodiscard]] std::string said() const { return job_->err() + agent_folder_.read("stderr"); }

  private:
    [[nodiscard]] int launcher_port() const {
        std::string text;
        wait_until([&] { return !(text = folder_.read("port")).empty(); }, kLongMs);
        return std::atoi(text.c_str());
    }

    TemporaryFolder folder_, agent_folder_;
    ManInTheMiddle middle_;
    std::unique_ptr<JobProcess> job_;
    std::unique_ptr<JobProcess> agent_;
};

const char* name_of(Harm harm) {
    switch (harm) {
        case Harm::kNone:
            return "only read";
        case Harm::kFlip:
            return "changed";
        case Harm::kPutIn:
            return "put in";
        case Harm::kDrop:
            return "dropped";
        case Harm::kReplay:
            return "replayed";
    }
    return "";
}

void check_listening(const std::string& launcher) {
    WiredJob job(launcher, {});
    const int code = job.wait();
    INFO(job.said());
    CHECK(code == 0);
    CHECK(job.ran() == kCanary + "\n");
    const std::string wire = job.middle().from_agents() + job.middle().from_launcher();
    CHECK(wire.size() > 1000);
    CHECK_FALSE(mentions(wire, kCanary));
    CHECK_FALSE(mentions(wire, "HF_TOKEN"));
    CHECK_FALSE(mentions(wire, kAnswer));
}

void check_harm(const std::string& launcher, Harm harm, bool to_agent) {
    INFO(launcher << ", a frame to the " << (to_agent ? "agent " : "launcher ") << name_of(harm));
    // Harms the first long record to the agent, which starts the rank, or a record to the launcher
    // after handshake, identity and hello.
    WiredJob job(launcher, {harm, to_agent, to_agent ? 3 : 5, to_agent ? size_t{300} : size_t{0}});
    const int code = job.wait();
    INFO(job.said());
    CHECK(job.middle().harm_done());
    CHECK(code == static_cast<int>(ExitCode::kHosts));
    CHECK(mentions(job.said(), "cannot be trusted: the data was changed in transit"));
    // Before a frame is replayed, it arrives once unchanged, so the rank may have run.
    if (to_agent && harm != Harm::kReplay) CHECK(job.ran().empty());
}

constexpr Harm kHarms[] = {Harm::kFlip, Harm::kPutIn, Harm::kDrop, Harm::kReplay};

}  // namespace

TEST_CASE("whoever listens between launcher and agent reads neither a secret nor an output") {
    for (const char* launcher : {"join", "slurm", "openmpi"}) {
        INFO(launcher);
        check_listening(launcher);
    }
}

TEST_CASE("a frame that is changed, put in, dropped or replayed ends the job unbelieved") {
    for (const Harm harm : kHarms) check_harm("join", harm, true);
    for (const char* launcher : {"join", "slurm", "openmpi"})
        check_harm(launcher, Harm::kFlip, false);
}

TEST_CASE("every harm to a frame is noticed, in both directions and by every way of joining",
          "[.long]") {
    for (const char* launcher : {"join", "slurm", "openmpi"})
        for (const Harm harm : kHarms)
            for (const bool to_agent : {true, false}) check_harm(launcher, harm, to_agent);
}

}  // namespace dslaunch::test
