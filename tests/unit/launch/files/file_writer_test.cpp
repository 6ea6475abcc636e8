#include "launch/files/file_writer.h"

#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

using std::chrono::milliseconds;

// Takes the place of a disk: work waits until answer() is called.
class Disk {
  public:
    [[nodiscard]] FileWriter::Work work(int status = 0) const {
        return [answered = answered_, status] {
            answered.wait();
            return status;
        };
    }
    void answer() { promise_.set_value(); }

  private:
    std::promise<void> promise_;
    std::shared_future<void> answered_ = promise_.get_future().share();
};

}  // namespace

TEST_CASE("work is done in the order of its calls, on another thread") {
    const auto done = std::make_shared<std::vector<int>>();
    FileWriter writer("/disk");
    for (int i = 0; i < 1'000; ++i) {
        CHECK(writer.post(
            [=] {
                done->push_back(i);
                return 0;
            },
            1));
    }
    REQUIRE(writer.wait(milliseconds(60'000)));
    REQUIRE(done->size() == 1'000);
    for (int i = 0; i < 1'000; ++i) CHECK(done->at(i) == i);
    CHECK(writer.kept_bytes() == 0);
    CHECK(writer.take_news().empty());
}

TEST_CASE("beyond what may wait work is dropped and counted, and nobody waits for room") {
    Disk disk;
    FileWriter writer("/disk");
    CHECK(writer.post(disk.work(), 1));
    constexpr size_t kRest = FileWriter::kKeptBytesMax - 2 * FileWriter::kWorkBytes - 1;
    CHECK(writer.post([] { return 0; }, kRest));
    CHECK_FALSE(writer.post([] { return -EIO; }, 1));
    CHECK_FALSE(writer.post([] { return -EIO; }, 41));
    CHECK(writer.kept_bytes() == kRest + 1);
    // Work that opens a file must not be dropped, although it holds no bytes.
    CHECK(writer.post([] { return 0; }, 0));
    disk.answer();
    REQUIRE(writer.wait(milliseconds(60'000)));
    CHECK(writer.take_failure() == 0);
    CHECK_THAT(writer.take_news(), Catch::Contains("42 bytes for /disk are lost"));
    CHECK(writer.take_news().empty());
    CHECK(writer.post([] { return 0; }, 1));
}

TEST_CASE("many small works take no more memory than a few large ones") {
    Disk disk;
    FileWriter writer("/disk");
    constexpr size_t kMost = FileWriter::kKeptBytesMax / (FileWriter::kWorkBytes + 1);
    CHECK(writer.post(disk.work(), 1));
    size_t taken = 1;
    while (taken <= kMost && writer.post([] { return 0; }, 1)) ++taken;
    CHECK(taken == kMost);
    disk.answer();
    REQUIRE(writer.wait(milliseconds(60'000)));
    CHECK_THAT(writer.take_news(), Catch::Contains("1 bytes for /disk are lost"));
}

TEST_CASE("the first failure is told once") {
    FileWriter writer("/disk");
    for (const int status : {0, -ENOSPC, -EIO}) CHECK(writer.post([=] { return status; }, 1));
    REQUIRE(writer.wait(milliseconds(60'000)));
    CHECK(writer.take_failure() == ENOSPC);
    CHECK(writer.take_failure() == 0);
}

TEST_CASE("waiting for a disk ends with a signal, and with its time") {
    Disk disk;
    FileWriter writer("/disk");
    CHECK(writer.post(disk.work(), 1));
    CHECK_FALSE(writer.wait(milliseconds(1)));
    const UniqueFd signal(::eventfd(1, EFD_CLOEXEC));
    CHECK_FALSE(writer.wait(milliseconds(3'600'000), signal.get()));
    disk.answer();
    CHECK(writer.wait(milliseconds(60'000)));
}

TEST_CASE("a disk that never answers outlives its writer and takes nothing of it along") {
    Disk disk;
    const auto later = std::make_shared<std::atomic<bool>>(false);
    const std::weak_ptr<std::atomic<bool>> watched = later;
    {
        FileWriter writer("/disk");
        CHECK(writer.post(disk.work(), 1));
        CHECK(writer.post(
            [later] {
                later->store(true);
                return 0;
            },
            1));
    }
    disk.answer();
    CHECK_FALSE(later->load());
}
