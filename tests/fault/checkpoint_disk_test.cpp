// P19, P20: checkpoints on a disk that has no room for them. The job reports this before training
// if it can be known then, otherwise at the save that does not fit. No earlier checkpoint is lost.
#include "support/saving_job.h"
#include "support/skip.h"
#include "support/small_disk.h"
#include "support/text_tools.h"

namespace dslaunch::test {
namespace {

// Sizes for gpt.pt, which has 47392 fp32 parameters: both files of weights together take 370 KiB.
// The tensors of a checkpoint, with AdamW's two states, take 555 KiB; headers and a manifest come
// in addition.
struct SmallDisk {
    SavingJob job;
    bool usable = false;

    explicit SmallDisk(const std::string& size) {
        job.place = "/disk/out";
        job.steps = 12;
        job.interval = 2;
        usable = mount_small_disk(disk(), "size=" + size);
        if (!usable) report_skipped("checkpoints on a full disk", "mounting a tmpfs needs root");
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    ~SmallDisk() {
        if (usable) ::umount(disk().c_str());
    }
    [[nodiscard]] std::string disk() const { return job.folder.path() + "/disk"; }
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(job.output() + "/checkpoints"))
            if (entry.is_directory()) names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }
    void check_verified() const {
        const TemporaryFolder folder;
        JobProcess process(folder, {kDslaunch, "ckpt", "verify", job.output() + "/checkpoints"});
        const int code = process.wait();
        INFO(process.out() << process.err());
        CHECK(code == 0);
    }
};

}  // namespace

TEST_CASE("a disk that holds the weights and no checkpoint is told before training") {
    SmallDisk disk("700k");
    if (!disk.usable) return;
    JobProcess process(disk.job.folder, disk.job.command(false));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 72);
    CHECK(process.err().find(disk.job.output() + ": the trained weights need 37") !=
          std::string::npos);
    CHECK(process.err().find("KiB in this folder and a checkpoint needs 5") != std::string::npos);
    CHECK(process.err().find("KiB are free; free some space") != std::string::npos);
    CHECK(disk.job.losses().empty());
    CHECK(!std::filesystem::exists(disk.job.output() + "/checkpoints"));
}

TEST_CASE("a save that finds no room ends the run, and keeps what was saved before") {
    SmallDisk disk("2300k");  // room for three checkpoints, not for four
    if (!disk.usable) return;
    disk.job.change = [](Json& config) { config["dslaunch"]["save"].erase("keep"); };
    JobProcess process(disk.job.folder, disk.job.command(false));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 73);
    const std::vector<std::string> kept = disk.names();
    REQUIRE(kept == std::vector<std::string>{"step-2", "step-4", "step-6"});
    CHECK(process.err().find("the checkpoint of step 8 was not saved: ") != std::string::npos);
    CHECK(
        process.err().find(disk.job.output() + "/checkpoints: the checkpoint of step 8 needs 5") !=
        std::string::npos);
    CHECK(process.err().find("are free there; free some") != std::string::npos);
    CHECK(process.err().find("the newest checkpoint is from step 6") != std::string::npos);
    CHECK(newest_whole(disk.job.output()) == 6);
    disk.check_verified();

    // With room again, the job continues as if no save had failed.
    std::filesystem::remove_all(disk.job.output() + "/checkpoints/step-2");
    disk.job.change = [](Json& config) { config["dslaunch"]["save"]["keep"] = 1; };
    JobProcess resumed(disk.job.folder, disk.job.command(true));
    const int resumed_code = resumed.wait();
    INFO(resumed.err());
    CHECK(resumed_code == 0);
    SavingJob untouched;
    untouched.steps = 12;
    run_to_end(untouched);
    CHECK(disk.job.losses() == untouched.losses());
    CHECK(disk.job.weights() == untouched.weights());
}

TEST_CASE("training goes on after saves that find no room, where it was told to") {
    SmallDisk disk("1150k");  // room for the weights and one checkpoint, not for two
    if (!disk.usable) return;
    disk.job.change = [](Json& config) {
        config["dslaunch"]["save"] = {{"interval", 2}, {"keep", 1}, {"on_error", "continue"}};
    };
    JobProcess process(disk.job.folder, disk.job.command(false));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 0);
    CHECK(disk.job.losses().size() == 12);
    CHECK(disk.names() == std::vector<std::string>{"step-2"});
    CHECK(newest_whole(disk.job.output()) == 2);
    // The saves of steps 4, 6, 8, 10 and 12 failed.
    CHECK(count_of(process.err(), "the newest checkpoint is from step 2; training continues") == 5);
    CHECK(!disk.job.weights().empty());
    disk.check_verified();
}

TEST_CASE("an output folder that is moved or removed is named, with what to do") {
    for (const bool is_moved : {true, false}) {
        SavingJob job;
        job.steps = 10'000'000;
        job.interval = 2;
        JobProcess process(job.folder, job.command(false));
        REQUIRE(wait_until([&] { return newest_whole(job.output()) >= 2; }));
        if (is_moved)
            std::filesystem::rename(job.output(), job.output() + "-old");
        else
            std::filesystem::rename(job.output() + "/checkpoints", job.output() + "-old");
        if (!is_moved) std::filesystem::remove_all(job.output());
        const int code = process.wait();
        INFO(process.err());
        CHECK(code == 73);
        CHECK(count_of(process.err(), "this folder was moved or removed while the job ran") == 1);
        CHECK(count_of(process.err(), "--output NEWNAME --resume") == 1);
        CHECK(count_of(process.err(), "no checkpoint was saved") == 0);
        CHECK(count_of(process.err(), "run.json") == 0);
    }
}

}  // namespace dslaunch::test
