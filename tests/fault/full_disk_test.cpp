// A job whose --output is on a full disk, before training and at its end. The disk is a tmpfs in
// the job's own mount namespace.
#include <filesystem>

#include "support/catch.h"
#include "support/skip.h"
#include "support/small_disk.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

std::vector<std::string> command(const TemporaryFolder& folder, int64_t steps) {
    std::ifstream facts(fixture_path("models/gpt.json"));
    write_file(folder.path() + "/config.json", fixture_config(Json::parse(facts), 1, steps).dump());
    return {kDslaunch,
            "--num_gpus",
            "2",
            "--device",
            "cpu",
            "--output",
            folder.path() + "/disk/out",
            fixture_path("models/gpt.pt"),
            "--config",
            folder.path() + "/config.json"};
}

void check_no_weights(const std::string& folder) {
    if (!std::filesystem::exists(folder)) return;  // a job that is refused removes its folder
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        INFO(entry.path().string());
        CHECK(entry.path().filename().string().find("model.") == std::string::npos);
    }
}

}  // namespace

TEST_CASE("a disk that cannot hold the weights is told before training") {
    const TemporaryFolder folder;
    const std::string disk = folder.path() + "/disk";
    // gpt.pt has 47392 fp32 parameters: both files of weights need 370 KiB.
    if (!mount_small_disk(disk, "size=300k"))
        return report_skipped("a full disk under a job", "mounting a tmpfs needs root");
    JobProcess process(folder, command(folder, 3));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 72);
    CHECK(process.err().find(disk + "/out: the trained weights need 37") != std::string::npos);
    CHECK(process.err().find("KiB are free; free some space") != std::string::npos);
    CHECK(folder.read("disk/out/metrics.jsonl").empty());
    check_no_weights(disk + "/out");
    CHECK(::umount(disk.c_str()) == 0);
}

TEST_CASE("a disk that cannot hold what is offloaded is told before training, with the numbers") {
    const TemporaryFolder folder;
    const std::string disk = folder.path() + "/disk";
    if (!mount_small_disk(disk, "size=300k"))
        return report_skipped("a full disk under a job", "mounting a tmpfs needs root");
    const std::vector<std::string> words = command(folder, 3);
    Json config = Json::parse(folder.read("config.json"));
    config["zero_optimization"] = {
        {"stage", 3}, {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", disk}}}};
    write_file(folder.path() + "/config.json", config.dump());
    JobProcess process(folder, words);
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 72);
    // The ranks need 8 bytes for each of gpt.pt's 47392 parameters, 370.25 KiB in whole blocks.
    // Each rank needs half of this.
    CHECK(process.err().find("KiB needed by 2 ranks, ") != std::string::npos);
    CHECK(process.err().find("free some space there, or set nvme_path to other folders") !=
          std::string::npos);
    CHECK(folder.read("disk/out/metrics.jsonl").empty());
    // The kernel releases the files of an io_uring a little later.
    CHECK(wait_until([&] { return ::umount(disk.c_str()) == 0; }));
}

TEST_CASE("a disk that is full at the last file of weights keeps the whole one and no half one") {
    const TemporaryFolder folder;
    const std::string disk = folder.path() + "/disk";
    // The disk has room for the tensors of both files of weights and of a checkpoint (926 KiB), but
    // not for their headers, the manifest and the archive's code.
    if (!mount_small_disk(disk, "size=970k"))
        return report_skipped("a full disk under a job", "mounting a tmpfs needs root");
    JobProcess process(folder, command(folder, 3));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 72);
    CHECK(process.err().find(disk + "/out/model.pt: cannot write") != std::string::npos);
    CHECK(process.err().find("are free there") != std::string::npos);
    int weights = 0;
    for (const auto& entry : std::filesystem::directory_iterator(disk + "/out"))
        weights += entry.path().filename().string().starts_with("model.") ? 1 : 0;
    CHECK(weights == 1);
    CHECK(std::filesystem::file_size(disk + "/out/model.safetensors") > 47392 * 4);
    CHECK(::umount(disk.c_str()) == 0);
}

TEST_CASE("a disk that fills up while training ends the job, and no half weights stay") {
    const TemporaryFolder folder;
    const std::string disk = folder.path() + "/disk";
    if (!mount_small_disk(disk, "size=4m"))
        return report_skipped("a full disk under a job", "mounting a tmpfs needs root");
    JobProcess process(folder, command(folder, 500));
    const std::string metrics = disk + "/out/metrics.jsonl";
    REQUIRE(wait_until([&] {
        return std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0;
    }));
    {
        std::ofstream filler(disk + "/filler", std::ios::binary);
        filler << std::string(8 << 20, 'x');
    }
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 73);
    CHECK(process.err().find(disk + "/out/checkpoints: the checkpoint of step 500 needs") !=
          std::string::npos);
    CHECK(process.err().find("No space left on device") != std::string::npos);  // metrics.jsonl
    check_no_weights(disk + "/out");
    CHECK(::umount(disk.c_str()) == 0);
}

}  // namespace dslaunch::test
