// P18, P26: training jobs that are killed while they save. A committed checkpoint stays whole, and
// a resumed run has the same bits as a run that was never killed.

#include <cstdio>
#include <map>
#include <random>

#include "support/job_end.h"
#include "support/saving_job.h"

namespace dslaunch::test {

using namespace launch;
namespace {

struct Kills {
    int asked = 0;
    uint64_t seed = 1;
};

// Kills JOB at random moments and resumes it, until at least KILLS.asked kills were made and it has
// run to its end. Compares the result with UNTOUCHED, which nobody killed.
void check_kills(const Kills& kills, SavingJob& job, const SavingJob& untouched) {
    std::mt19937_64 random(kills.seed);
    int killed = 0, ended = 0;
    int64_t newest = -1;
    while (killed < kills.asked || ended == 0) {
        // A run that is killed before its first save leaves only metrics, which --resume refuses.
        JobProcess process(job.folder, job.command(/*resume=*/newest >= 0));
        const bool kills_again = killed < kills.asked;
        if (kills_again) {
            const auto wait = std::chrono::milliseconds(100 + random() % 1'500);
            const auto limit = Steady::now() + wait;
            int code = -1;
            while (Steady::now() < limit && code < 0) code = process.wait(1);
            if (code < 0) {
                kill_one(process, random() % 3);
                ++killed;
                code = process.wait();
                INFO(process.err());
                REQUIRE(code != -1);
                REQUIRE(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
                const int64_t now = newest_whole(job.output());
                INFO("newest was " << newest << " and is " << now);
                REQUIRE(now >= newest);
                newest = now;
                continue;
            }
            INFO(process.err());
            REQUIRE(code == 0);
        } else {
            const int code = process.wait();
            INFO(process.err());
            REQUIRE(code == 0);
        }
        ++ended;
        REQUIRE(job.losses() == untouched.losses());
        REQUIRE(job.weights() == untouched.weights());
        std::filesystem::remove_all(job.output());
        newest = -1;
    }
    std::printf("%d kills, %d runs came to their end, all with the bits of the run without\n",
                killed, ended);
}

}  // namespace

TEST_CASE("a run that is killed at random and resumed has the bits of one that is not") {
    adopt_orphans();
    SavingJob untouched;
    run_to_end(untouched);
    CHECK(untouched.losses().size() == 40);
    SavingJob job;
    check_kills({4, 7}, job, untouched);
}

TEST_CASE("200 random kills, each resumed", "[.long]") {
    adopt_orphans();
    SavingJob untouched;
    untouched.steps = 120;
    run_to_end(untouched);
    SavingJob job;
    job.steps = 120;
    check_kills({200, 11}, job, untouched);
}

TEST_CASE("1000 kills while every step is saved leave a whole checkpoint", "[.long]") {
    adopt_orphans();
    SavingJob job;
    job.steps = 1'000'000;
    job.interval = 1;
    std::mt19937_64 random(3);
    int64_t newest = -1;
    for (int kill = 0; kill < 1'000; ++kill) {
        JobProcess process(job.folder, job.command(/*resume=*/true));
        const size_t before = job.losses().empty() ? 0 : job.losses().rbegin()->first;
        REQUIRE(wait_until([&] {
            const auto losses = job.losses();
            return !losses.empty() && losses.rbegin()->first > static_cast<int64_t>(before);
        }));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
        const int64_t done = job.losses().rbegin()->first;
        kill_one(process, random() % 3);
        REQUIRE(process.wait() != -1);
        REQUIRE(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
        const int64_t now = newest_whole(job.output());
        INFO("kill " << kill << ": newest was " << newest << " and is " << now << ", steps "
                     << done);
        REQUIRE(now >= newest);
        // Two further steps may be done while a save is under way; at most these and the saved step
        // are lost.
        REQUIRE(now >= done - 3);
        newest = now;
        std::filesystem::remove(job.output() + "/metrics.jsonl");
    }
    std::printf("1000 kills, step %ld\n", static_cast<long>(newest));
}

TEST_CASE("a restarted job goes on from its newest checkpoint") {
    adopt_orphans();
    SavingJob untouched;
    run_to_end(untouched);
    SavingJob job;
    job.more = {"--max-restarts", "2"};
    JobProcess process(job.folder, job.command(false));
    REQUIRE(wait_until([&] { return job.has_stepped(); }));
    const std::vector<ProcessName> workers = workers_of(process);
    REQUIRE(workers.size() == 2);
    // Only one check for a file lies between the first save and the kill, so most of the 40 steps
    // are not done yet.
    const std::string latest = job.output() + "/checkpoints/latest";
    REQUIRE(wait_until([&] { return std::filesystem::exists(latest); }));
    REQUIRE(signal_process(workers.front(), SIGKILL));
    CHECK(process.wait() == 0);
    INFO(process.err());
    CHECK(process.err().find("resuming from") != std::string::npos);
    // The report suggests a next command only if no restart follows.
    CHECK(process.err().find("go on with: ") == std::string::npos);
    CHECK(job.losses() == untouched.losses());
    CHECK(job.weights() == untouched.weights());
}

}  // namespace dslaunch::test
