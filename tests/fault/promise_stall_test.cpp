// P5: if the other ranks wait for a rank until the time limit is over, the report names this rank.
// It may be stopped; its compute lane may not reach the next collective although its process lives
// and sends heartbeats; or it may have another plan. A job without a fault gets no such report.
#include <fmt/format.h>
#include <sys/ptrace.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "endless_job.h"
#include "support/catch.h"
#include "support/figures.h"
#include "support/job_end.h"
#include "support/rig_hosts.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// The longest time that a job should need to end after the limit is over.
constexpr double kStallEndGoalMs = 45'000;

// Holds one thread of a process still until the process ends; the main thread is the compute lane.
// The other threads continue, so the process sends heartbeats but does not reach its next
// collective. The thread is held while it computes, not while it waits for others.
class HeldThread {
  public:
    explicit HeldThread(pid_t thread_id)
        : holder_([this, thread_id] {
              held_ = ::ptrace(PTRACE_SEIZE, thread_id, nullptr, nullptr) == 0 &&
                      stop_where_it_computes(thread_id);
              decided_ = true;
              int status = 0;
              // The tracer of a process must wait for its end; otherwise the process stays as a
              // zombie.
              while (held_ && ::waitpid(thread_id, &status, __WALL) == thread_id)
                  if (WIFEXITED(status) || WIFSIGNALED(status)) return;
          }) {}
    HeldThread(const HeldThread&) = delete;
    HeldThread& operator=(const HeldThread&) = delete;
    ~HeldThread() { holder_.join(); }
    [[nodiscard]] bool holds() const {
        return wait_until([this] { return decided_.load(); }) && held_;
    }

  private:
    static bool stop_where_it_computes(pid_t thread_id) {
        for (int attempt = 0; attempt < 2'000; ++attempt) {
            int status = 0;
            if (::ptrace(PTRACE_INTERRUPT, thread_id, nullptr, nullptr) != 0 ||
                ::waitpid(thread_id, &status, __WALL) != thread_id || !WIFSTOPPED(status))
                return false;
            // The file begins with the number of the thread's system call; -1 means no system call.
            std::ifstream file("/proc/" + std::to_string(thread_id) + "/syscall");
            std::string call;
            file >> call;
            if (call == "-1") return true;
            ::ptrace(PTRACE_CONT, thread_id, nullptr, nullptr);
            std::this_thread::sleep_for(std::chrono::milliseconds(7));
        }
        return false;
    }
    std::atomic<bool> decided_ = false;
    std::atomic<bool> held_ = false;
    std::thread holder_;
};

enum class Stall { kStopped, kStoppedEarly, kAsleep };

const char* name_of(Stall how) {
    switch (how) {
        case Stall::kStopped:
            return "stopped (SIGSTOP)";
        case Stall::kStoppedEarly:
            return "stopped while it sets up";
        case Stall::kAsleep:
            return "asleep before a collective";
    }
    return "";
}

// Returns the rank of a dsworker, read from its environment.
int rank_of(const ProcessName& worker) {
    const std::string text = '\0' + process_file(worker.pid, "environ");
    const size_t at = text.find(std::string("\0RANK=", 6));
    REQUIRE(at != std::string::npos);
    return std::atoi(text.c_str() + at + 6);
}

// Stalls one of a job's four ranks. Returns true if the report names exactly this rank. Adds the
// time from the stall to the launcher's end to FIGURES.
bool stalls_and_is_named(Stall how, const TimedJob& timed, std::mt19937& dice, Figures& figures) {
    EndlessJob& job = *timed.job;
    REQUIRE(wait_until([&] { return job.processes("/dsworker").size() == 4; }));
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::uniform_int_distribution<int>(0, 200)(dice)));
    const auto workers = job.processes("/dsworker");
    REQUIRE(workers.size() == 4);
    const ProcessName victim = workers[std::uniform_int_distribution<size_t>(0, 3)(dice)];
    const int rank = rank_of(victim);
    std::optional<HeldThread> held;
    if (how == Stall::kAsleep) {
        held.emplace(victim.pid);
        REQUIRE(held->holds());
    } else {
        REQUIRE(signal_process(victim, SIGSTOP));
    }
    const auto began = Steady::now();
    const int code = job.process.wait();
    const double detected_ms = milliseconds_since(began);
    const std::string report = job.process.err();
    INFO(name_of(how) << ", rank " << rank << "\n" << report);
    CHECK(code == 69);
    // The limit counts from the rank's last progress. A rank that was still being set up, or that
    // other programs kept from its processor, made its last progress some time before the stall.
    if (how != Stall::kStoppedEarly && machine_is_ours())
        CHECK(detected_ms > 1e3 * timed.timeout_s - 200);
    CHECK(detected_ms < 1e3 * timed.timeout_s + limit_ms(kStallEndGoalMs));
    figures.add(detected_ms);
    const std::string words = fmt::format("rank {} on host {} (pid {}) is behind", rank,
                                          rank < 2 ? "left" : "right", victim.pid);
    CHECK(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
    return report.find(words) != std::string::npos;
}

bool stall_one(Stall how, std::mt19937& dice, Figures& figures) {
    if (how != Stall::kStoppedEarly)
        return stalls_and_is_named(how, start_with_timeout(), dice, figures);
    // On a busy machine, another rank may lag by more than the shorter limit; then the report names
    // that rank, correctly.
    for (const int timeout_s : kTimeoutsS) {
        TimedJob timed{timeout_s, std::make_unique<EndlessJob>(std::vector<std::string>{
                                      "--timeout", std::to_string(timeout_s)})};
        if (stalls_and_is_named(how, timed, dice, figures)) return true;
    }
    return false;
}

void stall_ranks(Stall how, int runs) {
    std::mt19937 dice(5);
    Figures figures;
    int named = 0;
    for (int run = 0; run < runs; ++run) named += stall_one(how, dice, figures) ? 1 : 0;
    figures.print(fmt::format("P5 one of 4 ranks {}, --timeout {}, named in {} of {}: job ended",
                              name_of(how), kTimeoutsS[0], named, runs));
    CHECK(named == runs);
}

// Trains for SECONDS, at least twice the time limit, and for some steps. Nothing is wrong; only
// other ranks share the processors.
void train_without_alarm(int seconds) {
    const TimedJob timed = start_with_timeout();
    EndlessJob& job = *timed.job;
    seconds = std::max(seconds, 2 * timed.timeout_s);
    const auto began = Steady::now();
    const size_t done_before = job.metrics().size();
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    CHECK(wait_until(
        [&] { return job.metrics().size() > done_before + 3 || job.process.wait(0) != -1; }));
    const bool lives = name_process(job.process.pid()).start_time != 0;
    job.process.signal(SIGINT);
    const int code = job.process.wait();
    const std::string report = job.process.err();
    INFO(report);
    CHECK(lives);
    CHECK(code == 76);
    size_t alarms = 0;
    for (const char* word : {"is behind", "failed first", "is lost"})
        alarms += report.find(word) != std::string::npos ? 1 : 0;
    CHECK(alarms == 0);
    const auto steps = job.metrics();
    REQUIRE(!steps.empty());
    std::printf("P5 healthy training of 4 ranks, --timeout %d: %zu steps in %.0f s, %zu alarms\n",
                timed.timeout_s, steps.size(), milliseconds_since(began) / 1e3, alarms);
}

}  // namespace

TEST_CASE("P5: a rank that is stopped is named when the time limit is over") {
    stall_ranks(Stall::kStopped, 2);
}
TEST_CASE("P5: a rank that is stopped while it sets up is named when the time limit is over") {
    stall_ranks(Stall::kStoppedEarly, 2);
}
TEST_CASE("P5: a rank that beats but does not come to the next collective is named") {
    stall_ranks(Stall::kAsleep, 2);
}
TEST_CASE("P5 with 20 ranks each way", "[.long]") {
    for (const Stall how : {Stall::kStopped, Stall::kStoppedEarly, Stall::kAsleep})
        stall_ranks(how, 20);
}

TEST_CASE("P5: a rank whose plan is another one is named before the first step") {
    const RigHosts rig(2, "P5: hosts whose ranks hold different plans");
    if (!rig.usable()) return;
    const TemporaryFolder folder;
    std::ifstream facts_file(fixture_path("models/gpt.json"));
    const Json facts = Json::parse(facts_file);
    write_file(folder.path() + "/config.json", fixture_config(facts, 1, 3).dump());
    write_file(folder.path() + "/other.json", fixture_config(facts, 2, 3).dump());
    write_file(folder.path() + "/hostfile", "n1 slots=1\nn2 slots=1 port=24\n");
    // Starts a second sshd on n2, which sees another config in place of the file.
    std::ifstream key_file(rig.folder() + "/host.pub");
    std::string type, key;
    key_file >> type >> key;
    std::ofstream(rig.folder() + "/known_hosts", std::ios::app)
        << "[n2]:24 " << type << " " << key << "\n";
    REQUIRE(rig.run(2, {"sh", "-c",
                        fmt::format("mount --bind {0}/other.json {0}/config.json && exec "
                                    "/usr/sbin/sshd -f /dev/null -p 24 -o PidFile=none -o "
                                    "HostKey={1}/host -o AuthorizedKeysFile={1}/authorized_keys "
                                    "-o StrictModes=no -o UsePAM=no",
                                    folder.path(), rig.folder())}) == 0);
    rig.wait_for_port(2, 24);
    for (const bool compared : {true, false}) {
        std::vector<std::string> words =
            rig.on(0, {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--ssh-config",
                       rig.config("good"), "--device", "cpu", "--output", folder.path() + "/out"});
        if (!compared) words.push_back("--no_ssh_check");
        words.insert(words.end(),
                     {fixture_path("models/gpt.pt"), "--config", folder.path() + "/config.json"});
        const auto began = Steady::now();
        JobProcess job(folder, words);
        const int code = job.wait();
        const std::string report = job.err();
        INFO(report);
        CHECK(code == (compared ? 67 : 74));
        CHECK(report.find(compared ? "config.json" : "the step plan of rank 1 (") !=
              std::string::npos);
        CHECK(folder.read("out/metrics.jsonl").empty());
        std::printf("P5 ranks with different plans, files %s: ended with %d after %.1f s\n",
                    compared ? "compared" : "not compared", code, milliseconds_since(began) / 1e3);
    }
}

TEST_CASE("P5: a training in which nothing is wrong is not accused") {
    train_without_alarm(10);
}
TEST_CASE("P5: five minutes of training in which nothing is wrong bring no alarm", "[.long]") {
    train_without_alarm(300);
}

}  // namespace dslaunch::test
