// Files that take another's place, and folders: names, modes, and what stands in the way.
#include "base/new_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

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

}  // namespace dslaunch
