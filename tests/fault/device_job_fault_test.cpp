// Jobs of dsworker processes on test devices that are killed, stopped, asked to end, or too large.
// They end as jobs on the CPU do, even if the work of a device is blocked in a collective.
#include <sys/prctl.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "launch/process/process_tree.h"
#include "support/device/test_gpus.h"
#include "support/job_end.h"
#include "support/listener.h"
#include "support/saving_job.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// The longest wait between ranks. It is shorter than the time limit of a test, and longer than a
// rank can lag on a busy machine.
constexpr const char* kTimeoutS = "20";

// A job that does not end by itself and saves nothing. It has two ranks, each with a device.
struct DeviceJob : SavingJob {
    explicit DeviceJob(const std::string& what) : gpus(2, what) {
        REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
        steps = 10'000'000;
        more = {"--timeout", kTimeoutS};
        change = [](Json& config) {
            config["zero_optimization"]["stage"] = 2;
            config["dslaunch"].erase("save");
        };
    }
    void start() {
        process = std::make_unique<JobProcess>(folder, gpus.on_devices(command(/*resume=*/false)));
    }
    void await_steps() const {
        const bool stepped = wait_until([&] { return losses().size() >= 3; });
        INFO(process->err());
        REQUIRE(stepped);
    }
    [[nodiscard]] ProcessName worker(int rank) const {
        const std::string variable = "RANK=" + std::to_string(rank);
        for (const ProcessName& each : workers_of(*process))
            for (const std::string& line : split(process_file(each.pid, "environ"), '\0'))
                if (line == variable) return each;
        FAIL("there is no " + variable);
        return {};
    }
    TestGpus gpus;
    std::unique_ptr<JobProcess> process;
};

bool is_stopped(pid_t pid) {
    const std::string stat = process_file(pid, "stat");
    const size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.substr(name_end).starts_with(") T");
}

// Stops RANK1 at a moment when rank 0's device is in a collective and waits only for RANK1. If
// RANK1 was stopped at another moment, such as between two steps, lets it continue and tries again.
void stop_where_peer_is_blocked(const TestGpus& gpus, const ProcessName& rank1) {
    constexpr int kBlockedMs = 300;
    int try_ms = 0;
    const bool found = wait_until([&] {
        REQUIRE(signal_process(rank1, SIGSTOP));
        REQUIRE(wait_until([&] { return is_stopped(rank1.pid); }));
        if (wait_until([&] { return gpus.is_blocked(0); }, kBlockedMs)) return true;
        REQUIRE(signal_process(rank1, SIGCONT));
        std::this_thread::sleep_for(std::chrono::milliseconds(try_ms = (try_ms + 7) % 40));
        return false;
    });
    REQUIRE(found);
}

}  // namespace

TEST_CASE("a killed rank ends a job whose other rank's device waits for it, and is named") {
    DeviceJob job("a rank killed while the other one's device is in a collective");
    if (!job.gpus.usable()) return;
    job.start();
    job.await_steps();
    const auto all = descendants(job.process->pid());
    const ProcessName victim = job.worker(1);
    stop_where_peer_is_blocked(job.gpus, victim);
    REQUIRE(signal_process(victim, SIGKILL));
    const int code = job.process->wait();
    const std::string report = job.process->err();
    INFO(report);
    CHECK(code == 68);
    CHECK(report.find("rank 1 ") != std::string::npos);
    CHECK(report.find("failed first: killed by SIGKILL") != std::string::npos);
    CHECK(report.find(std::to_string(victim.pid)) != std::string::npos);
    check_gone(all, "rank killed, the other one's device blocked");
    CHECK(job.weights().empty());
}

TEST_CASE("a rank that stands still is named when the time limit is over, its peer's device too") {
    DeviceJob job("a rank stopped while the other one's device is in a collective");
    if (!job.gpus.usable()) return;
    job.start();
    job.await_steps();
    const auto all = descendants(job.process->pid());
    const ProcessName victim = job.worker(1);
    stop_where_peer_is_blocked(job.gpus, victim);
    const int code = job.process->wait();
    const std::string report = job.process->err();
    INFO(report);
    CHECK(code == 69);
    const size_t at = report.find(" is behind");
    REQUIRE(at != std::string::npos);
    const size_t begin = report.rfind('\n', at) + 1;
    const std::string line = report.substr(begin, report.find('\n', at) - begin);
    CHECK(line.starts_with("  rank 1 on host "));
    CHECK(line.find("(pid " + std::to_string(victim.pid) +
                    ") is behind, and has sent no heartbeat for ") != std::string::npos);
    check_gone(all, "rank stopped, the other one's device blocked");
}

// In an evaluation, the host waits for the parameters that it gathers, outside of the steps'
// executor.
TEST_CASE("a rank that stands still in an evaluation on devices is named too") {
    DeviceJob job("a rank stopped while the other one evaluates");
    if (!job.gpus.usable()) return;
    job.eval_interval = 1;  // an evaluation takes a hundred times as long as a step
    job.change = [](Json& config) {
        config["zero_optimization"]["stage"] = 3;
        config["dslaunch"].erase("save");
    };
    job.start();
    job.await_steps();
    const auto all = descendants(job.process->pid());
    const ProcessName victim = job.worker(1);
    stop_where_peer_is_blocked(job.gpus, victim);
    const int code = job.process->wait();
    const std::string report = job.process->err();
    INFO(report);
    CHECK(code == 69);
    CHECK(report.find("evaluating") != std::string::npos);
    const size_t at = report.find(" is behind");
    REQUIRE(at != std::string::npos);
    CHECK(report.substr(report.rfind('\n', at) + 1).starts_with("  rank 1 on host "));
    check_gone(all, "rank stopped in an evaluation");
}

TEST_CASE(
    "a job on devices that is asked to end saves its weights, and a killed launcher takes it "
    "along") {
    for (const int signal : {SIGINT, SIGKILL}) {
        DeviceJob job("a job on devices that is interrupted");
        if (!job.gpus.usable()) return;
        job.start();
        job.await_steps();
        const auto all = descendants(job.process->pid());
        job.process->signal(signal);
        const int code = job.process->wait();
        INFO(job.process->err());
        CHECK(code == (signal == SIGINT ? 76 : 128 + SIGKILL));
        CHECK(job.weights().empty() == (signal == SIGKILL));
        check_gone(all, "interrupted");
    }
}

TEST_CASE("a job that the devices have no memory for is refused before its first step") {
    DeviceJob job("a job on devices that are too small");
    if (!job.gpus.usable()) return;
    job.more = {"--env", "TEST_DEVICE_MEMORY=34"};
    job.start();
    const int code = job.process->wait();
    const std::string report = job.process->err();
    INFO(report);
    CHECK(code == 71);
    CHECK(report.find("memory of a GPU") != std::string::npos);
    CHECK(report.find("only 34.0 MiB available") != std::string::npos);
    CHECK(job.losses().empty());
}

// The worker has no agent and is on a host of its own, so no process reports the end of its peer or
// ends it. The abort of its device is lost, so the stream stays in the collective. A process that
// waited for its stream would not end.
TEST_CASE("a rank leaves by itself though its device is stuck in a collective for ever") {
    DeviceJob job("a worker alone whose device is stuck");
    if (!job.gpus.usable()) return;
    static_cast<void>(job.command(/*resume=*/false));  // writes the config
    const Listener listener = listen_on_loopback();
    REQUIRE(::fcntl(listener.fd.get(), F_SETFD, 0) == 0);  // rank 0 inherits it
    const auto worker = [&](int rank) {
        const std::string number = std::to_string(rank);
        std::vector<std::string> words = {"env",
                                          "RANK=" + number,
                                          "WORLD_SIZE=2",
                                          "LOCAL_RANK=0",
                                          "LOCAL_WORLD_SIZE=1",
                                          "GROUP_RANK=" + number,
                                          "DSL_NODE_SIZES=1,1",
                                          "MASTER_ADDR=127.0.0.1",
                                          "MASTER_PORT=" + std::to_string(listener.port),
                                          "CUDA_VISIBLE_DEVICES=" + number,
                                          "TEST_DEVICE_ABORT_IS_LOST=1"};
        if (rank == 0) words.push_back("DSL_RENDEZVOUS_FD=" + std::to_string(listener.fd.get()));
        words.insert(words.end(),
                     {job.gpus.program("dsworker"), "train", fixture_path("models/gpt.pt"),
                      "--config", job.folder.path() + "/config.json", "--set",
                      "dslaunch.device=cuda", "--output", job.output(), "--timeout", kTimeoutS});
        return job.gpus.inside(words);
    };
    const TemporaryFolder second;
    JobProcess rank0(job.folder, worker(0)), rank1(second, worker(1));
    REQUIRE(wait_until([&] { return job.losses().size() >= 3; }));
    stop_where_peer_is_blocked(job.gpus, name_process(rank1.pid()));
    rank1.signal(SIGKILL);
    CHECK(rank1.wait() == 128 + SIGKILL);
    REQUIRE(wait_until([&] { return rank0.err().find("did not finish") != std::string::npos; }));
    const auto began = Steady::now();
    const int code = rank0.wait();
    const double ms = milliseconds_since(began);
    INFO(rank0.err());
    CHECK(code == 69);
    std::printf("a rank whose device is stuck left %.0f ms after it said so\n", ms);
}

}  // namespace dslaunch::test
