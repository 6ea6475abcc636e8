
#include <sys/stat.h>

#include <fstream>

#include "launch/files/file_facts.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Returns the status of a file that has not changed for a long time.
struct stat old_file(int number) {
    struct stat status {};
    status.st_dev = 1;
    status.st_ino = static_cast<ino_t>(number);
    status.st_size = 10;
    status.st_mtim = {1'000'000, 1};
    status.st_ctim = {1'000'000, 2};
    return status;
}

const std::string kHash(64, 'a');

}  // namespace

TEST_CASE("a hash is found again by an equal device, inode, size and times only") {
    TemporaryFolder folder;
    const std::string path = folder.path() + "/below/hashes";
    HashCache first(path);
    first.add(old_file(1), false, kHash);
    first.save();
    struct stat written {};
    REQUIRE(::stat(path.c_str(), &written) == 0);
    CHECK((written.st_mode & 0777) == 0600);
    HashCache second(path);
    CHECK(second.find(old_file(1), false) == kHash);
    CHECK(second.find(old_file(1), true).empty());
    for (int changed = 0; changed < 5; ++changed) {
        struct stat other = old_file(1);
        other.st_dev += changed == 0;
        other.st_ino += changed == 1;
        other.st_size += changed == 2;
        other.st_mtim.tv_nsec += changed == 3;
        other.st_ctim.tv_nsec += changed == 4;
        INFO(changed);
        CHECK(second.find(other, false).empty());
    }
}

TEST_CASE("a file that was just written is not remembered") {
    TemporaryFolder folder;
    HashCache cache(folder.path() + "/hashes");
    struct stat status = old_file(1);
    ::clock_gettime(CLOCK_REALTIME, &status.st_ctim);
    cache.add(status, false, kHash);
    CHECK(cache.find(status, false).empty());
}

TEST_CASE("the cache is bounded, the oldest go") {
    TemporaryFolder folder;
    const std::string path = folder.path() + "/hashes";
    HashCache cache(path);
    const auto more = static_cast<int>(HashCache::kEntriesMax) + 3;
    for (int i = 0; i < more; ++i) cache.add(old_file(i), false, kHash);
    cache.save();
    HashCache again(path);
    CHECK(again.find(old_file(2), false).empty());
    CHECK(again.find(old_file(3), false) == kHash);
    CHECK(again.find(old_file(more - 1), false) == kHash);
}

TEST_CASE("a damaged cache, or none that can be written, only costs time") {
    TemporaryFolder folder;
    const std::string path = folder.path() + "/hashes";
    std::ofstream(path) << "1 2 3\n1 1 10 x y 0 " << kHash << "\n\0\0\n1 1 10 5 5 0 short\n";
    HashCache cache(path);
    CHECK(cache.find(old_file(1), false).empty());
    HashCache nowhere("/proc/no/hashes");
    nowhere.add(old_file(1), false, kHash);
    nowhere.save();
    CHECK(nowhere.find(old_file(1), false) == kHash);
}

TEST_CASE("a known file is not read again, unless all bytes are asked for") {
    TemporaryFolder folder;
    const std::string path = folder.path() + "/file";
    std::ofstream(path) << "content";
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    const std::string cache_path = folder.path() + "/hashes";
    // The cache says that the file was read long ago, with other content. So the hash shows whether
    // the file or the cache was used.
    std::ofstream(cache_path) << status.st_dev << ' ' << status.st_ino << ' ' << status.st_size
                              << ' '
                              << status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec
                              << ' '
                              << status.st_ctim.tv_sec * 1'000'000'000 + status.st_ctim.tv_nsec
                              << " 0 " << kHash << '\n';
    HashCache cache(cache_path);
    CHECK(look_at_file(
              path, false, [] {}, &cache)
              .hash == kHash);
    // printf content | sha256sum
    const char* real = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
    CHECK(look_at_file(
              path, true, [] {}, &cache)
              .hash == real);
    CHECK(look_at_file(path, false, [] {}).hash == real);
}
