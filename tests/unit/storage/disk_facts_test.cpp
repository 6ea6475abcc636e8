#include "storage/disk/disk_facts.h"

#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace storage;

TEST_CASE("a disk has one plain word as its name, and folders on it share it") {
    const TemporaryFolder folder;
    const DiskFacts facts = disk_facts(folder.path());
    CHECK(facts.id.find_first_not_of(
              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:") ==
          std::string::npos);
    REQUIRE(::mkdir((folder.path() + "/inner").c_str(), 0700) == 0);
    CHECK(disk_facts(folder.path() + "/inner").id == facts.id);
    if (!facts.device.empty())
        CHECK(facts.capacity.value >=
              static_cast<int64_t>(std::filesystem::space(folder.path()).capacity));
    const DiskFacts none = disk_facts("/proc");
    CHECK_THAT(none.id, Catch::Contains(":dev-0-"));
    CHECK(none.device.empty());
    CHECK(none.capacity == Bytes{0});
    CHECK_THROWS_WITH(disk_facts(folder.path() + "/missing"),
                      Catch::Contains("no such folder; give an existing folder"));
    CHECK_THROWS_WITH(disk_facts("/proc/self/maps"),
                      Catch::Contains("is not a folder; give an existing folder"));
}

TEST_CASE("wear is drive writes a day") {
    // 100 GiB in six hours are two drive writes a day for a disk of 200 GiB.
    CHECK(drive_writes_per_day(gib(100), std::chrono::hours(6), gib(200)) == Approx(2.0));
    CHECK(drive_writes_per_day(Bytes{0}, std::chrono::hours(6), gib(200)) == 0.0);
}

TEST_CASE("the log's words on wear are in powers of ten, and say what is not known") {
    // 1 GB in 1 s on 1.92 TB: 86.4 TB a day.
    CHECK(
        wear_text("/nvme", Bytes{1'000'000'000}, std::chrono::seconds(1),
                  Bytes{1'920'000'000'000}) ==
        "1.0 GB written per step to /nvme; at this rate 45 drive writes per day (capacity 1.9 TB)");
    CHECK(wear_text("/nvme", Bytes{12'345'678}, std::chrono::milliseconds(500), Bytes{gib(1000)}) ==
          "12.3 MB written per step to /nvme; at this rate 1.99 drive writes per day (capacity 1.1 "
          "TB)");
    CHECK(wear_text("/x", Bytes{0}, std::chrono::seconds(1), Bytes{500'107'862'016}) ==
          "0 B written per step to /x; at this rate 0.00 drive writes per day (capacity 500 GB)");
    CHECK(wear_text("/x", Bytes{999}, std::chrono::seconds(1), Bytes{}) ==
          "999 B written per step to /x; the wear is unknown, because the capacity of the drive is "
          "unknown");
}

}  // namespace dslaunch::test
