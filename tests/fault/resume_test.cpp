// Checkpoints that --resume uses, skips or refuses, and other files in the folder of a run.

#include "base/fd.h"
#include "support/saving_job.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using namespace storage;
namespace {

void resume_from(SavingJob& job, int64_t step) {
    job.more = {"--resume=" + job.output() + "/checkpoints/step-" + std::to_string(step)};
}

}  // namespace

TEST_CASE(
    "a damaged checkpoint is refused by name, and passed over when the newest is looked for") {
    SavingJob job;
    job.steps = 9;
    run_to_end(job);
    const std::string folder = job.output() + "/checkpoints/step-9";
    const std::string path = folder + "/optimizer-00001-of-00002.safetensors";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(20'000);
    const auto byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(20'000);
    file.put(byte);
    file.close();
    job.steps = 12;
    job.more = {"--resume=" + folder};
    JobProcess refused(job.folder, job.command(false));
    CHECK(refused.wait() == 73);
    INFO(refused.err());
    CHECK(refused.err().find("optimizer-00001-of-00002.safetensors") != std::string::npos);
    CHECK(refused.err().find("--resume=" + job.output() + "/checkpoints/step-6") !=
          std::string::npos);
    job.more.clear();
    JobProcess process(job.folder, job.command(true));
    CHECK(process.wait() == 0);
    INFO(process.err());
    CHECK(process.err().find("skipping " + job.output() + "/checkpoints/step-9: ") !=
          std::string::npos);
    CHECK(process.err().find("resuming from " + job.output() + "/checkpoints/step-6") !=
          std::string::npos);
    CHECK(process.err().find("only a hint") == std::string::npos);
    SavingJob untouched;
    untouched.steps = 12;
    run_to_end(untouched);
    CHECK(job.losses() == untouched.losses());
}

TEST_CASE("--resume says so when somebody has changed `latest`, which chooses nothing") {
    SavingJob job;
    job.steps = 9;
    run_to_end(job);
    const std::string root = job.output() + "/checkpoints";
    job.steps = 10;
    write_file(root + "/latest", "step-3\r\n");
    const ProgramEnd older = run_program(job.folder, job.command(true));
    INFO(older.err);
    CHECK(older.code == 0);
    CHECK(mentions(older.err,
                   root + "/latest names step-3, but the file is only a hint: " + root +
                       "/step-9 is used, the newest complete checkpoint; to use step-3, give "
                       "--resume=" +
                       root + "/step-3"));
    job.steps = 11;
    const ProgramEnd own = run_program(job.folder, job.command(true));
    INFO(own.err);
    CHECK(own.code == 0);
    CHECK_FALSE(mentions(own.err, "only a hint"));
    write_file(root + "/latest", "global_step7");
    resume_from(job, 10);
    job.steps = 12;
    const ProgramEnd named = run_program(job.folder, job.command(false));
    INFO(named.err);
    CHECK(named.code == 0);
    CHECK_FALSE(mentions(named.err, "only a hint"));
    job.more.clear();
    job.steps = 13;
    write_file(root + "/latest", "global_step7");
    const ProgramEnd missing = run_program(job.folder, job.command(true));
    INFO(missing.err);
    CHECK(mentions(missing.err,
                   "names global_step7, which does not exist, but the file is only a hint: "));
}

TEST_CASE("what --resume cannot find is told") {
    SavingJob job;
    job.steps = 2;
    job.more = {"--resume=" + job.folder.path() + "/nowhere"};
    JobProcess nowhere(job.folder, job.command(false));
    CHECK(nowhere.wait() == 73);
    CHECK(nowhere.err().find("nowhere") != std::string::npos);
    job.more.clear();
    JobProcess fresh(job.folder, job.command(true));
    CHECK(fresh.wait() == 0);
    CHECK(fresh.err().find("training begins at step 0") != std::string::npos);
}

TEST_CASE("a folder in which a job runs is refused by that job's id, and still means that job") {
    SavingJob job;
    job.steps = 10'000'000;
    JobProcess running(job.folder, job.command(false));
    REQUIRE(wait_until([&] { return newest_whole(job.output()) >= 3; }));
    for (const bool resume : {false, true}) {
        TemporaryFolder folder;
        JobProcess refused(folder, job.command(resume));
        CHECK(refused.wait() == 73);
        INFO(refused.err());
        CHECK(refused.err().find(" is running and writes there, now at step ") !=
              std::string::npos);
        CHECK(refused.err().find("continue from it with --resume") == std::string::npos);
    }
    TemporaryFolder folder;
    JobProcess stop(folder, {kDslaunch, "stop", job.output()});
    CHECK(stop.wait() == 0);
    CHECK(stop.out().find("its launcher ended as asked") != std::string::npos);
    CHECK(running.wait() == 76);
}

TEST_CASE("a folder with another run's checkpoints is not begun in, nor its metrics added to") {
    SavingJob job;
    job.steps = 3;
    run_to_end(job);
    const std::string metrics = read_file(job.output() + "/metrics.jsonl", 1 << 20);
    const ProgramEnd refused = run_program(job.folder, job.command(false));
    INFO(refused.err);
    CHECK(refused.code == 73);
    CHECK(mentions(refused.err, "has checkpoints of an earlier run, the newest of step 3"));
    CHECK(mentions(refused.err, "--resume"));
    CHECK(mentions(refused.err, "--output"));
    CHECK(read_file(job.output() + "/metrics.jsonl", 1 << 20) == metrics);

    // The previous run has done steps but has saved nothing.
    for (const char* saved : {"/checkpoints", "/model.safetensors", "/model.pt"})
        std::filesystem::remove_all(job.output() + saved);
    const ProgramEnd nothing = run_program(job.folder, job.command(true));
    INFO(nothing.err);
    CHECK(nothing.code == 73);
    CHECK(mentions(nothing.err,
                   "there is no complete checkpoint, only metrics.jsonl of an earlier run"));
    const ProgramEnd anew = run_program(job.folder, job.command(false));
    INFO(anew.err);
    CHECK(anew.code == 0);
    CHECK(read_file(job.output() + "/metrics-1.jsonl", 1 << 20) == metrics);
    CHECK(read_file(job.output() + "/metrics.jsonl", 1 << 20).starts_with("{\"step\": 1,"));
}

TEST_CASE("a run that goes on from an older step leaves the later ones of the other aside") {
    SavingJob job;
    job.steps = 9;
    run_to_end(job);
    const auto first = job.losses();
    job.steps = 7;
    resume_from(job, 3);
    job.change = [](Json& config) { config["dslaunch"]["seed"] = 99; };
    const ProgramEnd other = run_program(job.folder, job.command(false));
    INFO(other.err);
    REQUIRE(other.code == 0);
    CHECK(mentions(other.err, "dslaunch.seed is 99, but was 1234: the order of the data changes"));
    CHECK(job.losses().at(6) != first.at(6));
    // The job has its own checkpoints of step 6 and of step 7, its last. The other run's
    // checkpoints of steps 6 and 9 were set aside undamaged.
    CHECK(newest_whole(job.output()) == 7);
    std::vector<std::string> aside;
    for (const auto& entry : std::filesystem::directory_iterator(job.output() + "/checkpoints"))
        if (entry.path().filename().string().starts_with("abandoned-"))
            aside.push_back(entry.path());
    REQUIRE(aside.size() == 2);
    std::ranges::sort(aside);
    CHECK(aside[0].ends_with("-step-6"));
    CHECK(aside[1].ends_with("-step-9"));
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    for (const std::string& folder : aside) {
        const CheckpointReader reader(*tree, folder);
        for (size_t f = 0; f < reader.checkpoint().files.size(); ++f)
            CHECK(reader.verify_file(f).empty());
    }
    job.more.clear();
    const ProgramEnd again = run_program(job.folder, job.command(true));
    INFO(again.err);
    CHECK(again.code == 0);
    CHECK(mentions(again.err, "is already at step 7, its last, so there is nothing to do"));
    job.steps = 8;
    const ProgramEnd longer = run_program(job.folder, job.command(true));
    INFO(longer.err);
    CHECK(longer.code == 0);
    CHECK(mentions(longer.err, "resuming from " + job.output() + "/checkpoints/step-7"));
}

TEST_CASE("a job that is killed in its set-up goes on from the checkpoint that was named") {
    SavingJob job;
    job.steps = 9;
    run_to_end(job);
    job.steps = 12;
    // Only the folder of the first run has later checkpoints that may be mistaken for the job's
    // own.
    for (const char* place : {"/out", "/other"}) {
        resume_from(job, 3);
        const std::string named = job.output() + "/checkpoints/step-3";
        job.more.insert(job.more.end(), {"--max-restarts", "1"});
        if (place != job.place) {
            std::filesystem::copy(job.output(), job.folder.path() + place,
                                  std::filesystem::copy_options::recursive);
            job.place = place;
        }
        JobProcess process(job.folder, job.command(false));
        kill_in_set_up(process, 2);
        const int code = process.wait();
        INFO(place << "\n" << process.err());
        CHECK(code == 0);
        CHECK(mentions(process.err(), "restart 1 of 1"));
        CHECK(mentions(process.err(), "resuming from " + named));
        CHECK_FALSE(mentions(process.err(), "/step-9: its weights"));
        CHECK_FALSE(mentions(process.err(), "/step-12: its weights"));
        CHECK(newest_whole(job.output()) == 12);
    }
}

TEST_CASE("a job that is killed after a save goes on from there, not from what was named") {
    SavingJob job;
    job.steps = 6;
    run_to_end(job);
    resume_from(job, 3);
    job.more.insert(job.more.end(), {"--max-restarts", "1"});
    job.steps = 40;
    const std::string saved = job.output() + "/checkpoints/step-9";
    JobProcess process(job.folder, job.command(false));
    REQUIRE(wait_until([&] { return std::filesystem::exists(saved); }));
    REQUIRE(signal_process(workers_of(process).front(), SIGKILL));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 0);
    const std::string after = process.err().substr(process.err().find("restart 1 of 1"));
    CHECK(mentions(after, "resuming from "));
    CHECK_FALSE(mentions(after, "/step-3: its weights"));
}

TEST_CASE("another batch size goes on where the samples ended") {
    SavingJob job;
    job.steps = 6;
    run_to_end(job);
    job.steps = 8;
    job.change = [](Json& config) {
        config["train_micro_batch_size_per_gpu"] =
            2 * config["train_micro_batch_size_per_gpu"].get<int>();
    };
    const ProgramEnd more = run_program(job.folder, job.command(true));
    INFO(more.err);
    CHECK(more.code == 0);
    // The run makes 6 steps, in which each of 2 ranks has a batch of 2 rows. Then it makes 2 steps
    // with batches twice as large.
    CHECK(mentions(more.err, "after step 6 and 24 samples"));
    const ProgramEnd inspected =
        run_program({kDslaunch, "ckpt", "inspect", job.output(), "--json"});
    CHECK(Json::parse(inspected.out).dump().find("\"samples_seen\":40") != std::string::npos);
}

TEST_CASE("what another optimizer or model cannot take is refused by name") {
    SavingJob job;
    job.steps = 3;
    run_to_end(job);
    job.steps = 6;
    const auto losses = job.losses();
    job.change = [](Json& config) {
        config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 1e-3}}}};
    };
    const ProgramEnd optimizer = run_program(job.folder, job.command(true));
    INFO(optimizer.err);
    CHECK(optimizer.code == 73);
    CHECK(mentions(optimizer.err,
                   "step-3: the checkpoint's optimizer adamw keeps [exp_avg, exp_avg_sq] for "
                   "each parameter, but this run's optimizer keeps []"));
    job.change = {};
    job.model = "llama";
    const ProgramEnd model = run_program(job.folder, job.command(true));
    INFO(model.err);
    CHECK(model.code == 73);
    CHECK(mentions(model.err, "step-3: the checkpoint is of another model: it lacks "));
    CHECK(mentions(model.err, "; the model lacks "));
    CHECK(job.losses() == losses);
    CHECK(newest_whole(job.output()) == 3);
}

TEST_CASE("of two jobs with one --output the second ends before it trains") {
    adopt_orphans();
    SavingJob first;
    first.steps = 200;
    first.interval = 50;
    JobProcess process(first.folder, first.command(false));
    REQUIRE(wait_until([&] { return first.has_stepped(); }));
    // The first job is stopped until the second is refused, because the second may take long to
    // start.
    const std::vector<ProcessName> workers = workers_of(process);
    for (const ProcessName& worker : workers) REQUIRE(signal_process(worker, SIGSTOP));
    REQUIRE(workers.size() == 2);
    SavingJob second;
    // Both jobs have the same folder under different paths.
    second.place = "/../" + std::filesystem::path(first.folder.path()).filename().string() + "/out";
    const ProgramEnd refused = run_program(second.folder, second.command(false));
    INFO(refused.err);
    CHECK(refused.code == 73);
    CHECK(mentions(refused.err, "is running and writes there"));
    REQUIRE(process.wait(0) == -1);  // the first still trains
    for (const ProcessName& worker : workers) REQUIRE(signal_process(worker, SIGCONT));
    REQUIRE(process.wait() == 0);
    CHECK(process.err().find("warning checkpoint") == std::string::npos);
    CHECK(newest_whole(first.output()) == 200);
    SavingJob untouched;
    untouched.steps = 200;
    untouched.interval = 50;
    run_to_end(untouched);
    CHECK(first.losses() == untouched.losses());
    CHECK(first.weights() == untouched.weights());
    const auto lines = [](const SavingJob& job) {
        std::ifstream file(job.output() + "/metrics.jsonl");
        return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    };
    CHECK(lines(first) == lines(untouched));
}

TEST_CASE("weights that are not finite are saved, shown, passed over, and push nothing out") {
    SavingJob job;
    job.steps = 5;
    job.interval = 1;
    // The third update makes the weights infinite, and the fourth step's loss shows this.
    job.change = [](Json& config) {
        config["scheduler"] = {{"type", "WarmupLR"},
                               {"params",
                                {{"warmup_min_lr", 1e-3},
                                 {"warmup_max_lr", 1e42},
                                 {"warmup_num_steps", 2},
                                 {"warmup_type", "linear"}}}};
        config["dslaunch"]["save"] = {{"interval", 1}, {"keep", 1}, {"async", false}};
    };
    const ProgramEnd burst = run_program(job.folder, job.command(false));
    INFO(burst.err);
    CHECK(burst.code == 74);
    CHECK(mentions(burst.err, "the loss of step 4"));
    CHECK(newest_whole(job.output()) == 3);
    const ProgramEnd listed = run_program({kDslaunch, "ckpt", "ls", job.output()});
    INFO(listed.out);
    CHECK(listed.out.find("not finite") != std::string::npos);
    CHECK(std::filesystem::exists(job.output() + "/checkpoints/step-2"));

    job.change = [](Json& config) { config["dslaunch"]["save"]["keep"] = 1; };
    const ProgramEnd resumed = run_program(job.folder, job.command(true));
    INFO(resumed.err);
    CHECK(resumed.code == 0);
    CHECK(mentions(resumed.err, "step-3: it contains NaN or infinity"));
    CHECK(mentions(resumed.err, "resuming from " + job.output() + "/checkpoints/step-2"));
    CHECK(newest_whole(job.output()) == 5);
    CHECK(run_program({kDslaunch, "ckpt", "ls", job.output()}).out.find("not finite") ==
          std::string::npos);
}

}  // namespace dslaunch::test
