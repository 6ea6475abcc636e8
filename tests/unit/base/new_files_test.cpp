// Files that replace other files, and folders: their names, their modes, and obstacles in their
// place.
#include "base/new_files.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <vector>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace {

// The files and folders that this program flushes to the disk, in order. A test cannot cut the
// power, so it checks what would be left.
struct Flushes {
    bool recording = false;
    std::vector<std::string> paths;
    std::string refused;  // flushing it fails with EIO
};
Flushes flushes;

// Returns the paths that WORK flushes. Flushing REFUSED fails.
template <typename Work>
std::vector<std::string> flushed_by(const Work& work, const std::string& refused = {}) {
    flushes.recording = true;
    flushes.refused = refused;
    flushes.paths.clear();
    work();
    flushes.recording = false;
    return flushes.paths;
}

}  // namespace

// Replaces the C library's function.
extern "C" int fsync(int fd) {
    if (flushes.recording) {
        std::array<char, 4096> path{};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        if (::readlink(link.c_str(), path.data(), path.size() - 1) < 0) return -1;
        flushes.paths.emplace_back(path.data());
        if (flushes.paths.back() == flushes.refused) {
            errno = EIO;
            return -1;
        }
    }
    return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace dslaunch {

TEST_CASE("a temporary is new, under a name of its own, with the mode of what it will replace") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/file";
    std::set<std::string> names;
    for (int i = 0; i < 20; ++i) {
        const TemporaryFile file = open_temporary(path, 0600);
        REQUIRE(file.fd.valid());
        CHECK(file.path.starts_with(path + ".tmp-"));
        CHECK(file.path.find(std::to_string(::getpid())) == std::string::npos);
        CHECK(mode_of(file.path) == mode_t{0600});
        names.insert(file.path);
    }
    CHECK(names.size() == 20);
    CHECK_FALSE(mode_of(path));
    test::write_file(path, "old");
    REQUIRE(::chmod(path.c_str(), 0640) == 0);
    const mode_t before = ::umask(0077);
    const TemporaryFile like = open_temporary(path, 0666);
    const TemporaryFile fresh = open_temporary(path + "2", 0666);
    ::umask(before);
    CHECK(mode_of(like.path) == mode_t{0640});
    CHECK(mode_of(fresh.path) == mode_t{0600});
    errno = 0;
    CHECK_FALSE(open_temporary(folder.path() + "/none/file", 0600).fd.valid());
    CHECK(errno == ENOENT);
}

TEST_CASE("a file that is replaced keeps its mode, and nothing is left beside it") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/key";
    write_file_atomically(path, "secret", 0600);
    CHECK(mode_of(path) == mode_t{0600});
    write_file_atomically(path, "another", 0644);
    CHECK(mode_of(path) == mode_t{0600});
    CHECK(test::content_of(path) == "another");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("folders are made with those above them, whatever is there already") {
    const test::TemporaryFolder folder;
    const std::string root = folder.path();
    for (const char* name :
         {"/a", "/a/b/c", "/a/b/c", "/a/b/d/", "/a/b/e//f", "/a/./g/.", "/a/h/.."})
        CHECK(make_folders(root + name) == 0);
    for (const char* name : {"/a/b/c", "/a/b/d", "/a/b/e/f", "/a/g", "/a/h"})
        CHECK(std::filesystem::is_directory(root + name));
    CHECK(make_folders("") == 0);
    CHECK(make_folders("/") == 0);
    CHECK(make_folders(root + "/own/deep", 0700) == 0);
    struct stat about {};
    REQUIRE(::stat((root + "/own").c_str(), &about) == 0);
    CHECK((about.st_mode & 0777) == 0700);
    test::write_file(root + "/file", "");
    CHECK(make_folders(root + "/file") == EEXIST);
    CHECK(make_folders(root + "/file/in") != 0);
    CHECK(flush_folder(root) == 0);
    CHECK(flush_folder(root + "/none") == ENOENT);
}

// If a name was not flushed, it is gone after a power cut, with everything in the folder.
TEST_CASE("the parent of each folder that is made is flushed, from the top, and no other") {
    using Paths = std::vector<std::string>;
    const test::TemporaryFolder folder;
    const std::string root = std::filesystem::canonical(folder.path());
    const auto made = [&](const std::string& name) {
        return flushed_by([&] { CHECK(make_folders(root + name) == 0); });
    };
    CHECK(made("/a") == Paths{root});
    CHECK(made("/a/b/c/") == Paths{root + "/a", root + "/a/b"});
    CHECK(made("/a/b/c").empty());
    CHECK(made("/a//d/./e") == Paths{root + "/a", root + "/a/d"});
    int status = 0;
    const auto refused = [&](const std::string& name, const std::string& parent) {
        return flushed_by([&] { status = make_folders(root + name); }, parent);
    };
    CHECK(refused("/f/g/h", root + "/f") == Paths{root, root + "/f"});
    CHECK(status == EIO);
}

TEST_CASE("a file is flushed before it takes its name, and its folder after that") {
    using Paths = std::vector<std::string>;
    const test::TemporaryFolder folder;
    const std::string root = std::filesystem::canonical(folder.path());
    const Paths paths = flushed_by([&] { write_file_atomically(root + "/file", "new"); });
    REQUIRE(paths.size() == 2);
    CHECK(paths[0].starts_with(root + "/file.tmp-"));
    CHECK(paths[1] == root);
    const auto refused = [&](const std::string& path) {
        return flushed_by([&] { write_file_atomically(path, "newer"); }, root);
    };
    CHECK_THROWS_WITH(refused(root + "/file"), Catch::Contains("fsync of its folder failed"));
}

TEST_CASE("a file is replaced as a whole without a flush, and a failure leaves the old content") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/a";
    CHECK(replace_file(path, "first", 0600) == 0);
    CHECK(mode_of(path) == mode_t{0600});
    const auto flushed = flushed_by([&] { CHECK(replace_file(path, "second", 0644) == 0); });
    CHECK(flushed.empty());
    CHECK(test::content_of(path) == "second");
    CHECK(mode_of(path) == mode_t{0600});
    CHECK(replace_file(folder.path() + "/missing/a", "third", 0600) == -ENOENT);
    const std::string taken = folder.path() + "/folder";
    REQUIRE(::mkdir(taken.c_str(), 0700) == 0);
    CHECK(replace_file(taken, "third", 0600) == -EISDIR);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
}

}  // namespace dslaunch
