// A job in a pipeline whose disk fills up, or whose launcher or one stage is killed. It ends as
// other jobs do, and no process is left.

#include "support/job_end.h"
#include "support/saving_job.h"
#include "support/skip.h"
#include "support/small_disk.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// Two stages, on one host or on two pretended hosts, with four micro batches a step.
struct StagedJob : SavingJob {
    explicit StagedJob(bool over_hosts) {
        adopt_orphans();
        if (over_hosts) {
            ranks = 1;  // ranks of each host
            write_file(folder.path() + "/hostfile", "left slots=1\nright slots=1\n");
            more = {"--hostfile", folder.path() + "/hostfile", "--launcher", "local"};
        }
        change = [this](Json& config) {
            config["gradient_accumulation_steps"] = 4;
            config["dslaunch"]["pipeline"] = {{"stages", 2}};
            if (!saves) config["dslaunch"].erase("save");
            if (keep == 0) config["dslaunch"]["save"].erase("keep");
        };
    }
    bool saves = true;
    int keep = 3;
};

bool await_steps(const SavingJob& job) {
    return wait_until([&] { return job.losses().size() >= 3; });
}

}  // namespace

TEST_CASE("a killed launcher takes its pipeline along") {
    for (const bool over_hosts : {false, true}) {
        StagedJob job(over_hosts);
        job.steps = 10'000'000;
        job.saves = false;
        JobProcess process(job.folder, job.command(false));
        const bool stepped = await_steps(job);
        INFO(process.err());
        REQUIRE(stepped);
        const auto all = descendants(process.pid());
        REQUIRE(all.size() >= 3);
        process.signal(SIGKILL);
        CHECK(process.wait() == 128 + SIGKILL);
        check_gone(all, "launcher of a pipeline killed");
    }
}

TEST_CASE("a killed stage ends the pipeline, and is named") {
    for (const bool over_hosts : {false, true})
        for (const size_t worker : {size_t{1}, size_t{2}}) {
            StagedJob job(over_hosts);
            job.steps = 10'000'000;
            job.saves = false;
            JobProcess process(job.folder, job.command(false));
            const bool stepped = await_steps(job);
            INFO(process.err());
            REQUIRE(stepped);
            const auto all = descendants(process.pid());
            kill_one(process, worker);
            const int code = process.wait();
            INFO(process.err());
            CHECK(code == 68);
            CHECK(process.err().find("failed first: killed by SIGKILL") != std::string::npos);
            check_gone(all, "stage killed");
        }
}

TEST_CASE("a save of a pipeline that finds no room ends the run, and keeps what was saved before") {
    StagedJob job(/*over_hosts=*/false);
    job.place = "/disk/out";
    job.steps = 12;
    job.interval = 2;
    job.keep = 0;  // 0: keeps all
    const std::string disk = job.folder.path() + "/disk";
    // The disk has room for three checkpoints of 555 KiB and for weights of 370 KiB, but not for a
    // fourth checkpoint.
    if (!mount_small_disk(disk, "size=2300k"))
        return report_skipped("checkpoints of a pipeline on a full disk",
                              "mounting a tmpfs needs root");
    {
        JobProcess process(job.folder, job.command(false));
        const int code = process.wait();
        INFO(process.err());
        CHECK(code == 73);
        CHECK(process.err().find("the checkpoint of step 8 was not saved: ") != std::string::npos);
        CHECK(process.err().find("are free there; free some") != std::string::npos);
        CHECK(process.err().find("the newest checkpoint is from step 6") != std::string::npos);
        CHECK(newest_whole(job.output()) == 6);
        CHECK(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
    }
    // With room again, the job continues as if no save had failed.
    std::filesystem::remove_all(job.output() + "/checkpoints/step-2");
    job.keep = 1;
    {
        auto staged = job.change;
        job.change = [staged](Json& config) {
            staged(config);
            config["dslaunch"]["save"]["keep"] = 1;
        };
        JobProcess resumed(job.folder, job.command(true));
        const int code = resumed.wait();
        INFO(resumed.err());
        CHECK(code == 0);
    }
    StagedJob untouched(/*over_hosts=*/false);
    untouched.steps = 12;
    run_to_end(untouched);
    CHECK(job.losses() == untouched.losses());
    CHECK(job.weights() == untouched.weights());
    ::umount(disk.c_str());
}

}  // namespace dslaunch::test
