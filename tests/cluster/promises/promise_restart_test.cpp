// P35: a job with faults continues to work. Ranks are killed at random moments (a Poisson process
// on the wall clock), --max-restarts starts the job again, and the job continues from the state
// that its target has saved.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "cluster/promise.h"

namespace dslaunch::test {

using namespace launch;
namespace {

struct Work {
    double mtbf_s;
    int work_s;  // useful time of the whole job
    // The share of useful time that must be reached, relative to the best possible share with
    // restarts as slow as here. If 0, the share is only printed, because three faults say little
    // about it.
    double least;
    int faults_max = 1'000'000;
    int step_ms = 50;
    int save_ms = 100;

    // Return Young's interval between two saves, and the useful share of the wall time that Daly's
    // formula expects with this interval if a restart costs RESTART_S. Daly's wall time is M
    // e^(R/M) (e^((t+d)/M) - 1) W/t.
    [[nodiscard]] double interval_s() const { return std::sqrt(2 * save_ms / 1e3 * mtbf_s); }
    [[nodiscard]] double expected_share(double restart_s) const {
        const double cycle_s = interval_s() + save_ms / 1e3;
        return interval_s() /
               (mtbf_s * std::exp(restart_s / mtbf_s) * (std::exp(cycle_s / mtbf_s) - 1));
    }
};

bool is_rank(const ProcessName& process) {
    return process_file(process.pid, "cmdline").starts_with(kStub);
}

// Kills a rank of JOB at each event of a Poisson process until this object is destroyed. An event
// at which no rank runs is not counted as a fault.
class Faults {
  public:
    Faults(pid_t job, const Work& work) : thread_([this, job, work] { strike(job, work); }) {}
    Faults(const Faults&) = delete;
    Faults& operator=(const Faults&) = delete;
    ~Faults() {
        over_ = true;
        thread_.join();
    }
    [[nodiscard]] int count() const { return count_; }
    // Returns the total time from each fault to the moment when new ranks ran.
    [[nodiscard]] double down_s() const { return down_s_; }

  private:
    static std::vector<ProcessName> ranks_of(pid_t job) {
        std::vector<ProcessName> ranks;
        for (const ProcessName& each : descendants(job))
            if (is_rank(each)) ranks.push_back(each);
        return ranks;
    }
    void strike(pid_t job, const Work& work) {
        std::mt19937 dice(35);
        std::exponential_distribution<double> gap(1.0 / work.mtbf_s);
        auto next = Steady::now();
        while (count_ < work.faults_max) {
            next += std::chrono::duration_cast<Steady::duration>(
                std::chrono::duration<double>(gap(dice)));
            while (!over_ && Steady::now() < next)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            if (over_) return;
            const auto ranks = ranks_of(job);
            if (ranks.empty()) continue;
            const auto began = Steady::now();
            const ProcessName victim =
                ranks[std::uniform_int_distribution<size_t>(0, ranks.size() - 1)(dice)];
            if (!signal_process(victim, SIGKILL)) continue;
            ++count_;
            const auto runs_again = [&] {
                const auto now = ranks_of(job);
                return over_ ||
                       (!now.empty() &&
                        std::none_of(now.begin(), now.end(), [&](const ProcessName& each) {
                            return std::find(ranks.begin(), ranks.end(), each) != ranks.end();
                        }));
            };
            while (!runs_again()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            down_s_ = down_s_ + milliseconds_since(began) / 1e3;
        }
    }
    std::atomic<bool> over_ = false;
    std::atomic<int> count_ = 0;
    std::atomic<double> down_s_ = 0;
    std::thread thread_;
};

void work_under_faults(const Work& work) {
    const TemporaryFolder folder;
    const int steps = work.work_s * 1000 / work.step_ms;
    const int every = std::max(1, static_cast<int>(work.interval_s() * 1e3 / work.step_ms + 0.5));
    const auto began = Steady::now();
    JobProcess job(folder,
                   on_pretended_hosts(folder, "h[1-2] slots=2\n") +
                       Words{"--max-restarts", "1000", kStub, "progress", folder.path() + "/steps",
                             std::to_string(steps), std::to_string(work.step_ms),
                             std::to_string(every), std::to_string(work.save_ms)});
    int code = -1, faults = 0;
    double down_s = 0;
    {
        const Faults poisson(job.pid(), work);
        code = job.wait();
        faults = poisson.count();
        down_s = poisson.down_s();
    }
    const double share = work.work_s / (milliseconds_since(began) / 1e3);
    INFO(job.err());
    CHECK(code == 0);
    CHECK(folder.read("steps") == std::to_string(steps / every * every));
    REQUIRE(faults > 0);
    const double restart_s = down_s / faults;
    std::printf(
        "P35 %d s of work, MTBF %.0f s, saves of %d ms each %.1f s: %d faults, ETTR %.3f; Daly's "
        "expectation at Young's interval %.3f without time to restart, %.3f with the %.2f s that "
        "one took here\n",
        work.work_s, work.mtbf_s, work.save_ms, work.interval_s(), faults, share,
        work.expected_share(0), work.expected_share(restart_s), restart_s);
    // The rest depends on chance: the number of faults, and the time from a save to each fault.
    CHECK(share > work.least * work.expected_share(restart_s));
}

}  // namespace

TEST_CASE("P35: a job whose ranks are killed at random comes to its end by restarts") {
    // If several restarts follow each other, the waits before them grow. With faults every few
    // seconds, the waits would take most of the time, so there are only three faults.
    work_under_faults({1.5, 5, 0, 3});
}
TEST_CASE("P35: under faults each minute the useful share of the time is near the best",
          "[.long]") {
    work_under_faults({60, 300, 0.75});
}

}  // namespace dslaunch::test
