#include "storage/swap/swap_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "disk_test_tools.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/skip.h"
#include "support/text_tools.h"

namespace dslaunch::test {

using namespace storage;
namespace {

// A process that makes swap files and then waits. kill() ends it.
class Holder {
  public:
    Holder(const SwapPlace& place, Bytes capacity) {
        Pipe ready = make_pipe();
        pid_ = ::fork();
        if (pid_ == 0) {
            const SwapFiles files(place, capacity);
            static_cast<void>(write_full(ready.write_end.get(), "x"));
            for (;;) ::pause();
        }
        ready.write_end.reset();
        std::byte byte{};
        REQUIRE(read_full(ready.read_end.get(), {&byte, 1}) == 1);
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() { kill(); }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("a swap file is private, allocated whole, and gone at the end") {
    const TemporaryFolder folder;
    {
        const SwapFiles swap(place_in(folder, 2), mib(3));
        CHECK(names_in(folder.path()) ==
              std::vector<std::string>{"dslaunch-test-job-r0-0", "dslaunch-test-job-r0-1"});
        for (const BackingFile& file : swap.files().files) {
            struct stat info {};
            REQUIRE(::stat(file.path.c_str(), &info) == 0);
            CHECK((info.st_mode & 0777) == 0600);
            CHECK(info.st_size == mib(3).value / 2);
            CHECK(info.st_blocks * 512 >= mib(3).value / 2);
            REQUIRE(::stat(std::filesystem::path(file.path).parent_path().c_str(), &info) == 0);
            CHECK((info.st_mode & 0777) == 0700);
        }
    }
    CHECK(names_in(folder.path()).empty());
}

TEST_CASE("jobs and ranks on one path keep apart, and what a killed one left is removed") {
    const TemporaryFolder folder;
    SwapPlace place = place_in(folder);
    Holder living(place, mib(1));
    place.rank = 1;
    Holder killed(place, mib(1));
    killed.kill();
    CHECK(names_in(folder.path()).size() == 2);
    place.job_id = "other-job";
    {
        const SwapFiles swap(place, mib(1));
        CHECK(names_in(folder.path()) ==
              std::vector<std::string>{"dslaunch-other-job-r1-0", "dslaunch-test-job-r0-0"});
    }
    // The same name is refused while its process lives, and taken over when the process is gone.
    place = place_in(folder);
    try {
        const SwapFiles swap(place, mib(1));
        FAIL("two processes have one swap file");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kDisk);
        CHECK_THAT(error.what(), Catch::Contains("dslaunch-test-job-r0-0: another process"));
    }
    living.kill();
    { const SwapFiles swap(place, mib(1)); }
    CHECK(names_in(folder.path()).empty());
}

TEST_CASE("many that start at once on one path never remove each other's files") {
    const TemporaryFolder folder;
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            int status = 0;
            try {
                for (int round = 0; round < 40; ++round) {
                    SwapPlace place = place_in(folder);
                    place.rank = i;
                    const SwapFiles swap(place, Bytes{kBlockAlignment});
                    if (::access(swap.files().files[0].path.c_str(), F_OK) != 0) status = 1;
                }
            } catch (const std::exception&) {
                status = 2;
            }
            ::_exit(status);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
    CHECK(names_in(folder.path()).empty());
}

TEST_CASE("nothing but a dead job's swap file is ever removed") {
    const TemporaryFolder folder;
    const std::string path = folder.path();
    std::filesystem::create_directories(path + "/dslaunch-a-r0-0/inner");  // a folder: not ours
    std::filesystem::create_directories(path + "/dslaunch-b-r0-0");
    std::ofstream(path + "/dslaunch-b-r0-0/swap") << "x";
    std::ofstream(path + "/dslaunch-b-r0-0/notes") << "keep";  // more than a swap file
    std::ofstream(path + "/dslaunch-c-r0-0") << "a file";
    std::filesystem::create_directories(path + "/target");
    std::ofstream(path + "/target/swap") << "keep";
    std::filesystem::create_directory_symlink(path + "/target", path + "/dslaunch-d-r0-0");
    std::filesystem::create_directories(path + "/dslaunch-e-r0-0");
    std::filesystem::create_symlink(path + "/target/swap", path + "/dslaunch-e-r0-0/swap");
    std::filesystem::create_directories(path + "/dslaunch-dead-r0-0");
    std::ofstream(path + "/dslaunch-dead-r0-0/swap") << "x";
    // If a folder's name is not ours, somebody may be about to use it, even if it is empty or has
    // such a file.
    std::filesystem::create_directories(path + "/dslaunch-test-Xy");
    std::filesystem::create_directories(path + "/dslaunch-run-r1-");
    std::ofstream(path + "/dslaunch-run-r1-/swap") << "keep";
    std::filesystem::create_directories(path + "/someone-else");
    std::ofstream(path + "/someone-else/swap") << "keep";
    CHECK(remove_dead_swap_folders(path) == 1);
    CHECK(names_in(path) == std::vector<std::string>{"dslaunch-a-r0-0", "dslaunch-b-r0-0",
                                                     "dslaunch-c-r0-0", "dslaunch-d-r0-0",
                                                     "dslaunch-e-r0-0", "dslaunch-run-r1-",
                                                     "dslaunch-test-Xy", "someone-else", "target"});
    CHECK(std::filesystem::exists(path + "/dslaunch-run-r1-/swap"));
    CHECK(std::filesystem::exists(path + "/dslaunch-b-r0-0/notes"));
    CHECK(std::filesystem::exists(path + "/target/swap"));
    CHECK(std::filesystem::exists(path + "/someone-else/swap"));
    CHECK(remove_dead_swap_folders(path + "/missing") == 0);
}

TEST_CASE("another user's leftovers are left alone") {
    if (::geteuid() != 0)
        return report_skipped("leftovers of another user", "only root can pretend to be two users");
    const TemporaryFolder folder;
    REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);
    const std::string theirs = folder.path() + "/dslaunch-theirs-r0-0";
    std::filesystem::create_directories(theirs);
    std::ofstream(theirs + "/swap") << "x";
    REQUIRE(::chmod(theirs.c_str(), 0777) == 0);
    REQUIRE(::chmod((theirs + "/swap").c_str(), 0666) == 0);
    const ChildResult child = in_child([&]() -> std::string {
        if (::seteuid(65534) != 0) return "seteuid";
        return std::to_string(remove_dead_swap_folders(folder.path()));
    });
    CHECK(child.text == "0");
    CHECK(std::filesystem::exists(theirs + "/swap"));
}

TEST_CASE("too little room is told with need and free space, and nothing is left") {
    const TemporaryFolder folder;
    const ChildResult child = in_child([&]() -> std::string {
        if (!mount_disk(folder.path(), "tmpfs", "size=2m")) return "cannot mount";
        try {
            const SwapFiles swap(place_in(folder, 3), mib(5));
            return "not noticed";
        } catch (const Error& error) {
            if (error.code() != ExitCode::kDisk) return "code";
            return fmt::format("{}\n{}", names_in(folder.path()).size(), error.what());
        }
    });
    if (child.text == "cannot mount")
        return report_skipped("a full disk under a swap file", "mounting a tmpfs needs root");
    // The second of three files of 1,753,088 bytes does not fit into 2 MiB.
    CHECK_THAT(child.text, Catch::Contains("0\n" + folder.path() + "/dslaunch-test-job-r0-1/swap"));
    CHECK_THAT(child.text, Catch::Contains("needs 1.7 MiB (1753088 bytes), but only 3"));
    CHECK_THAT(child.text, Catch::Contains("are free there: free some space"));
}

TEST_CASE("a folder that is missing or read-only is a disk error that names it") {
    const TemporaryFolder folder;
    SwapPlace place = place_in(folder);
    place.folders[0] += "/missing";
    CHECK_THROWS_WITH(SwapFiles(place, mib(1)), Catch::Contains(place.folders[0] + "/dslaunch-"));
    CHECK_THROWS_WITH(SwapFiles(place, mib(1)), Catch::Contains("ENOENT"));
    // The second of two folders is missing, so the first file is removed again.
    place.folders = {folder.path(), folder.path() + "/missing"};
    CHECK_THROWS_AS(SwapFiles(place, mib(1)), Error);
    CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a disk without O_DIRECT and preallocation is used, and both are said") {
    const TemporaryFolder folder;
    for (const EngineCase& engine : kEngines) {
        if (engine.memory) continue;
        INFO(engine.name);
        const ChildResult child = in_child([&]() -> std::string {
            if (!mount_disk(folder.path(), "ramfs", nullptr)) return "cannot mount";
            const SwapFiles swap(place_in(folder), mib(1));
            if (swap.files().files[0].is_direct) return "direct";
            const auto file = open_block_file(swap.files(), engine.engine, {});
            AlignedMemory memory(mib(1)), read(mib(1));
            fill(memory.all(), 9);
            if (!file->submit(write_request(0, memory.all())).wait().has_moved(mib(1).value))
                return "write";
            if (!file->submit(read_request(0, read.all())).wait().has_moved(mib(1).value))
                return "read";
            return std::equal(memory.all().begin(), memory.all().end(), read.all().begin())
                       ? ""
                       : "bytes";
        });
        if (child.text == "cannot mount")
            return report_skipped("a disk without O_DIRECT", "mounting a ramfs needs root");
        CHECK(child.text == "");
        CHECK(child.err.find("does not support O_DIRECT") != std::string::npos);
        CHECK(child.err.find("cannot reserve space") != std::string::npos);
    }
}

}  // namespace dslaunch::test
