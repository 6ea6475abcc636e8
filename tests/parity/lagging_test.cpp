// Whole jobs whose updates lag (zenflow), with states on disk. The plan describes their updates,
// and a job that is stopped and resumed has the same bits as a job that was not stopped.
#include "fixture_runs.h"
#include "support/saving_job.h"

namespace dslaunch::test {
namespace {

constexpr int kSteps = 14;

void lag(SavingJob& job, const TemporaryFolder& disk, Json changes = Json::object()) {
    job.interval = 5;
    job.change = [&disk, changes](Json& config) {
        config["zero_optimization"] = {
            {"stage", 2},
            {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", disk.path()}}},
            {"zenflow",
             {{"topk_ratio", 0.1},
              {"update_interval", 3},
              {"select_strategy", "step"},
              {"select_interval", 6},
              {"full_warm_up_rounds", 2},
              {"overlap_step", true}}}};
        config["zero_optimization"].merge_patch(changes);
    };
}

void resume(SavingJob& job, int expected_code = 0, const std::string& said = "") {
    JobProcess process(job.folder, job.command(/*resume=*/true));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == expected_code);
    CHECK(process.err().find(said) != std::string::npos);
}

}  // namespace

TEST_CASE("a job whose updates lag is stopped and goes on with the bits of one that was not") {
    const TemporaryFolder disk;
    SavingJob whole, parts;
    for (SavingJob* job : {&whole, &parts}) lag(*job, disk);
    whole.steps = kSteps;
    run_to_end(whole);
    parts.steps = 7;  // stops while gradients wait
    run_to_end(parts);
    CHECK(parts.weights() != whole.weights());
    parts.steps = kSteps;
    resume(parts);
    CHECK(parts.losses() == whole.losses());
    CHECK(parts.weights() == whole.weights());
    // Without zenflow, the training is another one. Only the first steps are equal, since they
    // update everything.
    SavingJob exact;
    lag(exact, disk, {{"zenflow", nullptr}});
    exact.steps = kSteps;
    run_to_end(exact);
    CHECK(exact.losses().at(2) == whole.losses().at(2));
    CHECK(exact.losses().at(kSteps) != whole.losses().at(kSteps));
}

TEST_CASE("a run that begins to lag must choose first, and one that ends to lag says so") {
    const TemporaryFolder disk;
    SavingJob job;
    job.steps = 4;
    lag(job, disk, {{"zenflow", nullptr}});
    run_to_end(job);
    job.steps = kSteps;
    lag(job, disk);
    resume(job, static_cast<int>(ExitCode::kConfig), "full_warm_up_rounds to 5 or more");
    lag(job, disk, {{"zenflow", {{"full_warm_up_rounds", 5}}}});
    job.steps = 8;
    resume(job);
    job.steps = kSteps;
    lag(job, disk, {{"zenflow", nullptr}});
    resume(job, 0, "the delayed gradients in the checkpoint are ignored");
}

}  // namespace dslaunch::test
