// The best checkpoint and the early end of a training job: with kills at any moment, and where the
// run goes on, ends and leaves its weights.
#include <filesystem>
#include <random>

#include "fault/best/best_job.h"

namespace dslaunch::test {

TEST_CASE("a run ends when its patience does, and its weights are those of the best checkpoint") {
    SavingJob job;
    make_rise(job);
    const ProgramEnd outcome = run_rising(job, false);
    INFO(outcome.err << outcome.out);
    REQUIRE(outcome.code == 0);
    const auto found = evaluations(job);
    REQUIRE(!found.empty());
    const int64_t last = found.rbegin()->first;
    CHECK(last < job.steps);
    const int64_t best = best_evaluation(job);
    const double least = Json::parse(found.at(best)).at("eval_loss");
    CHECK(last == best + 3 * job.eval_interval);
    CHECK(kept_in(job) == KeptCheckpoints{{last, best}, best});
    CHECK(Json::parse(found.rbegin()->second).at("evals_without_gain") == 3);
    CHECK(Json::parse(found.rbegin()->second).contains("ended_early"));
    CHECK(outcome.says("ended early at step " + std::to_string(last) +
                       " of 60: eval_loss did not "
                       "improve in 3 evaluations"));
    CHECK(outcome.says("weights of step " + std::to_string(best) + ", the best"));

    CHECK(exported_weights(job, job.output() + "/best") == job.weights());
    const ProgramEnd listed = run_program(job.folder, {kDslaunch, "ckpt", "ls", job.output()});
    CHECK(listed.says(fmt::format("{:.4f} best", least)));

    // A resumed run ends at once with the same weights. With more patience, it continues.
    const std::string weights = job.weights();
    const ProgramEnd again = run_rising(job, true);
    INFO(again.err << again.out);
    CHECK(again.code == 0);
    CHECK(again.says("ended early at step " + std::to_string(last)));
    CHECK(job.weights() == weights);
    job.more = {"--set", "dslaunch.patience=4"};
    const ProgramEnd further = run_rising(job, true);
    INFO(further.err << further.out);
    CHECK(further.code == 0);
    CHECK(evaluations(job).rbegin()->first > last);
}

TEST_CASE(
    "a run that is killed at any moments has the best checkpoint and the end of an unkilled") {
    SavingJob unkilled;
    make_rise(unkilled);
    REQUIRE(run_rising(unkilled, false).code == 0);
    std::mt19937 random(53);
    SavingJob job;
    make_rise(job);
    size_t kills = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {
        const int64_t before = job.losses().empty() ? 0 : job.losses().rbegin()->first;
        JobProcess process(job.folder,
                           job.command(/*resume=*/attempt > 0 && newest_whole(job.output()) >= 0));
        const int64_t until = before + 3 + static_cast<int64_t>(random() % 9);
        if (!wait_until([&] {
                const auto losses = job.losses();
                return process.wait(1) >= 0 || (!losses.empty() && losses.rbegin()->first >= until);
            }))
            break;
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
        kill_one(process, random() % 3);
        kills += process.wait() != 0 ? 1 : 0;
        CHECK(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
        static_cast<void>(newest_whole(job.output()));
    }
    CHECK(kills > 0);
    const ProgramEnd outcome = run_rising(job, newest_whole(job.output()) >= 0);
    INFO(outcome.err << outcome.out);
    REQUIRE(outcome.code == 0);
    CHECK(evaluations(job) == evaluations(unkilled));
    // The newest checkpoint that a resume has verified is kept too.
    CHECK(kept_in(job).best == kept_in(unkilled).best);
    CHECK(kept_in(job).steps.front() == kept_in(unkilled).steps.front());
    CHECK(job.weights() == unkilled.weights());
}

TEST_CASE("--resume=best goes back to the best checkpoint and sets the later ones aside") {
    SavingJob job;
    make_rise(job);
    REQUIRE(run_rising(job, false).code == 0);
    const KeptCheckpoints before = kept_in(job);
    job.more = {"--resume=best", "--set", "dslaunch.patience=null", "--steps",
                std::to_string(before.best + 2)};
    const ProgramEnd outcome = run_rising(job, false);
    INFO(outcome.err << outcome.out);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.says("resuming from " + job.output() + "/checkpoints/step-" +
                       std::to_string(before.best)));
    CHECK(outcome.says("/step-" + std::to_string(before.steps.front()) +
                       " is from a run that this one does not continue"));
    CHECK(kept_in(job).steps.front() == before.best + 2);
}

TEST_CASE("a job that is killed in its set-up still goes back to the best checkpoint") {
    SavingJob job;
    make_rise(job);
    REQUIRE(run_rising(job, false).code == 0);
    const KeptCheckpoints before = kept_in(job);
    job.more = {"--resume=best",
                "--set",
                "dslaunch.patience=null",
                "--steps",
                std::to_string(before.best + 2),
                "--max-restarts",
                "1"};
    JobProcess process(job.folder, job.command(false));
    kill_in_set_up(process, 2);
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
    CHECK(mentions(process.err(), "restart 1 of 1"));
    CHECK(mentions(process.err(), "resuming from " + job.output() + "/checkpoints/step-" +
                                      std::to_string(before.best) + ":"));
    CHECK(kept_in(job).steps.front() == before.best + 2);
}

TEST_CASE("a run that evaluates more rarely than it saves saves from its first step on") {
    SavingJob job;
    job.steps = 4;
    job.interval = 1;
    job.eval_interval = 3;
    run_to_end(job);
    CHECK(newest_whole(job.output()) == 4);
    CHECK(kept_in(job).steps == std::vector<int64_t>{4, 3, 2});
}

TEST_CASE("a run that goes back under another name of its folder sets later steps aside too") {
    SavingJob job;
    job.steps = 9;
    run_to_end(job);
    std::filesystem::create_directory_symlink(job.output(), job.folder.path() + "/link");
    job.more = {"--resume=" + job.folder.path() + "/link/checkpoints/step-6"};
    JobProcess process(job.folder, job.command(false));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 0);
    CHECK(process.err().find("/step-9 is from a run that this one does not continue") !=
          std::string::npos);
}

TEST_CASE("a best checkpoint and patience without evaluations are refused with a way out") {
    SavingJob job;
    job.steps = 4;
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"--save-best"}, "dslaunch.data.eval_fraction"},
        {{"--patience", "2"}, "dslaunch.data.eval_fraction"},
        {{"--set", "dslaunch.data.eval_fraction=0.5", "--save-best"}, "dslaunch.eval_interval"},
        {{"--set", "dslaunch.data.eval_fraction=0.5", "--patience", "2"}, "dslaunch.eval_interval"},
        {{"--set", "dslaunch.patience_gain=0.1"}, "dslaunch.patience"},
        {{"--set", "dslaunch.data.eval_fraction=0.5", "--eval-interval", "2",
          "--save-best=eval_perplexity"},
         "eval_loss orders checkpoints as perplexity does"},
        {{"--set", "dslaunch.data.eval_fraction=0.5", "--eval-interval", "2",
          "--save-best=eval_rewards/accuracies"},
         "exists only for losses of pairs"},
    };
    for (const auto& [words, told] : cases) {
        job.more = words;
        const ProgramEnd outcome = run_rising(job, false);
        INFO(words.back() << "\n" << outcome.err);
        CHECK(outcome.code == 65);
        CHECK(outcome.says(told));
        CHECK_FALSE(std::filesystem::exists(job.output() + "/checkpoints"));
    }
}

}  // namespace dslaunch::test
