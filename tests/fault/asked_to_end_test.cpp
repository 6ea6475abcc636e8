// P27: a job that is asked to end, in any phase, saves its last step within the grace time. After a
// resume, its results have the same bits as a job that was never asked.

#include <array>
#include <cstdio>
#include <memory>
#include <random>

#include "support/figures.h"
#include "support/job_end.h"
#include "support/saving_job.h"

namespace dslaunch::test {

using namespace launch;
namespace {

enum class Phase : size_t { kLoad, kFirstStep, kStep, kEval, kSave };
constexpr std::array kPhases = {"load", "first step", "step", "eval", "save"};
constexpr int64_t kSteps = 150;

// Makes JOB spend most of its training time in PHASE.
void shape(SavingJob& job, Phase phase) {
    job.steps = kSteps;
    job.interval = phase == Phase::kSave ? 1 : kSteps;
    job.eval_interval = phase == Phase::kEval ? 1 : 0;
    if (phase != Phase::kEval) return;
    // Most of the samples are held out, and evaluated after each step.
    job.change = [](Json& config) { config["dslaunch"]["data"]["eval_fraction"] = 0.9; };
}

bool has_unfinished(const std::string& output) {
    const std::string root = output + "/checkpoints";
    if (!std::filesystem::exists(root)) return false;
    for (const auto& entry : std::filesystem::directory_iterator(root))
        if (entry.path().filename().string().find(".tmp-") != std::string::npos) return true;
    return false;
}

struct Asked {
    Figures to_end;
    std::array<Figures, kPhases.size()> by_phase;
    int saved = 0, before_a_step = 0, ended_by_itself = 0, resumed = 0;
};

class Asking {
  public:
    explicit Asking(uint64_t seed) : random_(seed) { untouched(Phase::kStep); }

    void ask(Phase phase, int number, Asked& asked) {
        SavingJob job;
        shape(job, phase);
        JobProcess process(job.folder, job.command(false));
        await(phase, job, process);
        const auto began = Steady::now();
        process.signal(number);
        const int code = process.wait();
        const double ms = milliseconds_since(began);
        INFO(kPhases[static_cast<size_t>(phase)] << ", signal " << number << "\n" << process.err());
        REQUIRE((code == 76 || code == 0));
        REQUIRE(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
        asked.to_end.add(ms);
        asked.by_phase[static_cast<size_t>(phase)].add(ms);
        check_saved(job, code, asked);
        if (asked.to_end.numel() % 10 == 0) check_resumed(job, phase, asked);
    }

  private:
    // Returns the run with PHASE's shape that nobody asks to end. The first call runs it.
    const SavingJob& untouched(Phase phase) {
        std::unique_ptr<SavingJob>& job = phase == Phase::kEval ? evaluated_ : untouched_;
        if (job != nullptr) return *job;
        job = std::make_unique<SavingJob>();
        shape(*job, phase);
        JobProcess process(job->folder, job->command(false));
        const auto began = Steady::now();
        REQUIRE(wait_until([&] { return job->has_stepped(); }));
        first_step_ms_ = milliseconds_since(began);
        const int code = process.wait();  // -1: it hangs
        INFO(process.err());
        REQUIRE(code == 0);
        REQUIRE(job->losses().size() == kSteps);
        return *job;
    }

    // Waits until a random moment of PHASE.
    void await(Phase phase, const SavingJob& job, JobProcess& process) {
        const auto sleep_ms = [](double ms) {
            std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
        };
        REQUIRE(wait_until([&] { return holds_signal(process.pid(), SIGTERM); }));
        if (phase == Phase::kLoad) return sleep_ms(random(0, 0.8) * first_step_ms_);
        if (phase == Phase::kFirstStep) return sleep_ms(random(0.8, 1.1) * first_step_ms_);
        bool is_over = false;
        const bool stepped = wait_until([&] {
            is_over = process.wait(0) >= 0;
            return is_over || job.has_stepped();
        });
        INFO(process.err());
        REQUIRE(stepped);
        REQUIRE_FALSE(is_over);
        sleep_ms(random(0, 250));
    }

    void check_saved(const SavingJob& job, int code, Asked& asked) {
        const auto losses = job.losses();
        const int64_t last = losses.empty() ? -1 : losses.rbegin()->first;
        REQUIRE(newest_whole(job.output()) == last);
        REQUIRE(!has_unfinished(job.output()));
        if (last < 0) {
            ++asked.before_a_step;
            return;
        }
        ++asked.saved;
        REQUIRE(!job.weights().empty());
        REQUIRE((code == 76 || last == kSteps));
        asked.ended_by_itself += last == kSteps ? 1 : 0;
    }

    void check_resumed(SavingJob& job, Phase phase, Asked& asked) {
        JobProcess process(job.folder, job.command(true));
        const int code = process.wait();  // -1: it hangs
        INFO(process.err());
        REQUIRE(code == 0);
        const SavingJob& whole = untouched(phase);
        REQUIRE(job.losses() == whole.losses());
        REQUIRE(job.weights() == whole.weights());
        ++asked.resumed;
    }

    double random(double least, double most) {
        return std::uniform_real_distribution<double>(least, most)(random_);
    }

    std::mt19937_64 random_;
    std::unique_ptr<SavingJob> untouched_;
    std::unique_ptr<SavingJob> evaluated_;
    double first_step_ms_ = 0;
};

void ask_often(int times, uint64_t seed) {
    adopt_orphans();
    Asking asking(seed);
    Asked asked;
    for (int i = 0; i < times; ++i)
        asking.ask(static_cast<Phase>(static_cast<size_t>(i) % kPhases.size()),
                   i % 2 == 0 ? SIGTERM : SIGUSR1, asked);
    asked.to_end.print("P27 from the signal to the end");
    for (size_t p = 0; p < kPhases.size(); ++p)
        asked.by_phase[p].print(std::string("P27 in ") + kPhases[p]);
    std::printf(
        "P27 %d saved their last step (%d of them had done all steps), %d had done none, %d "
        "resumed to the bits of a run that nobody asked\n",
        asked.saved, asked.ended_by_itself, asked.before_a_step, asked.resumed);
    CHECK(asked.saved >= times / 2);
}

}  // namespace

TEST_CASE("P27: asked to end in any phase, a run saves its last step and a resumed one goes on") {
    ask_often(10, 5);  // two signals in each phase
}
TEST_CASE("P27 with 500 signals", "[.long]") {
    ask_often(500, 6);
}

TEST_CASE("a time limit ends a run with its last step saved") {
    int64_t last = 0;
    // On a busy machine, the first limit may be over before the first step.
    for (const char* limit_s : {"4", "30"}) {
        SavingJob job;
        job.steps = 10'000'000;
        job.interval = 10'000'000;
        job.more = {"--time-limit", limit_s};
        JobProcess process(job.folder, job.command(false));
        const int code = process.wait();  // -1: it hangs
        INFO(process.err());
        REQUIRE(code != -1);
        const auto losses = job.losses();
        if (losses.empty()) continue;
        last = losses.rbegin()->first;
        CHECK(code == 0);
        CHECK(newest_whole(job.output()) == last);
        break;
    }
    CHECK(last > 0);
}

}  // namespace dslaunch::test
