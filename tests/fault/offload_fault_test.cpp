// A disk that changes, loses or cuts the file of a training job. The job ends, names the file and
// its content, and does not write weights that were computed from it.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "support/catch.h"
#include "support/text_tools.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

constexpr int kDisk = 72;

std::string swap_file_in(const std::string& nvme) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(nvme))
        if (entry.path().filename() == "swap") return entry.path().string();
    return "";
}

// Writes a block of noise at each multiple of SPACING bytes, and returns when all of them are on
// the disk.
void spoil(const std::string& path, int64_t spacing) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;  // the job has removed it
    const std::string noise(4096, '\x5A');
    const auto length = static_cast<int64_t>(std::filesystem::file_size(path));
    for (int64_t at = 0; at + 4096 <= length; at += spacing)
        REQUIRE(::pwrite(fd, noise.data(), noise.size(), at) == 4096);
    ::fdatasync(fd);
    ::close(fd);
}

struct Ended {
    int code = -1;
    std::string err;
};

// Trains with two ranks. Calls HARM with the swap file of one rank, again and again until the job
// ends.
Ended train_while(const std::function<void(const std::string& swap_file)>& harm) {
    const TemporaryFolder folder;
    const std::string nvme = folder.path() + "/nvme", out = folder.path() + "/out";
    std::filesystem::create_directory(nvme);
    std::ifstream facts(fixture_path("models/gpt.json"));
    Json config = fixture_config(Json::parse(facts), 1, 1'000'000);
    config["zero_optimization"] = {{"stage", 3},
                                   {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", nvme}}},
                                   {"offload_param", {{"device", "nvme"}, {"nvme_path", nvme}}}};
    config["dslaunch"]["offload"] = {{"chunk_numel", 2048}};  // more chunks than buffers
    write_file(folder.path() + "/config.json", config.dump());
    JobProcess job(folder,
                   {kDslaunch, "--num_gpus", "2", "--device", "cpu", "--output", out,
                    fixture_path("models/gpt.pt"), "--config", folder.path() + "/config.json"});
    const std::string metrics = out + "/metrics.jsonl";
    REQUIRE(wait_until([&] {
        return std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0;
    }));
    const std::string swap_file = swap_file_in(nvme);
    REQUIRE_FALSE(swap_file.empty());
    Ended ended;
    for (int turn = 0; turn < 200 && ended.code < 0; ++turn) {
        harm(swap_file);
        ended.code = job.wait(100);
    }
    ended.err = job.err();
    CHECK_FALSE(std::filesystem::exists(out + "/model.safetensors"));
    CHECK_FALSE(std::filesystem::exists(out + "/model.pt"));
    // Both ranks remove their swap files: the one that failed, and the one that was ended because
    // of it.
    CHECK(std::filesystem::is_empty(nvme));
    return ended;
}

}  // namespace

TEST_CASE("blocks of an offloaded job that somebody changes end it with the disk's code") {
    const Ended ended = train_while([](const std::string& file) { spoil(file, 16 * 4096); });
    INFO(ended.err);
    CHECK(ended.code == kDisk);
    CHECK(mentions(ended.err, "/swap: `"));
    CHECK(mentions(ended.err, "differs from what was written: expected XXH3"));
    CHECK(mentions(ended.err, " on host localhost failed first: exit code 72 (disk)"));
}

TEST_CASE("a swap file that is cut while its job runs ends it with the disk's code") {
    const Ended ended = train_while(
        [](const std::string& file) { static_cast<void>(::truncate(file.c_str(), 8 * 4096)); });
    INFO(ended.err);
    CHECK(ended.code == kDisk);
    // If a later write makes the file longer again, a read finds a hole.
    CHECK((mentions(ended.err, "the file was truncated, or its disk is full or failing") ||
           mentions(ended.err, "differs from what was written: expected XXH3")));
}

}  // namespace dslaunch::test
