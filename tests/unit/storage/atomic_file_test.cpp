#include "storage/files/atomic_file.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine/files_of_process.h"
#include "base/new_files.h"
#include "support/catch.h"
#include "support/write_safetensors.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

std::string folder_of_test() {
    const std::string folder = "/tmp/dsl_atomic_test." + std::to_string(::getpid());
    std::filesystem::create_directory(folder);
    return folder;
}

size_t file_count(const std::string& folder) {
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++files;
    return files;
}

constexpr char kCannotMount = '?';

// Writes 1 MiB of safetensors over a small file on a disk of 64 KiB, in a process with mounts of
// its own. Returns the error, or nothing; kCannotMount if this user may not mount.
std::string fill_a_disk(const std::string& folder) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return {kCannotMount};
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.c_str(), "tmpfs", 0, "size=64k") != 0)
        return {kCannotMount};
    const std::string path = folder + "/x.safetensors";
    write_file_atomically(path, "old");
    const std::string content(1 << 20, 'x');
    const SafetensorsEntry entry{
        "a", DType::kU8, {1 << 20}, std::as_bytes(std::span(content.data(), content.size()))};
    try {
        write_safetensors(path, {&entry, 1});
        return "a full disk went unnoticed";
    } catch (const Error& error) {
        const std::string message = error.what();
        if (error.code() != ExitCode::kDisk) return "not a disk error: " + message;
        for (const char* part :
             {path.c_str(), "cannot write 1.0 MiB", "ENOSPC", "60.0 KiB are free there"})
            if (message.find(part) == std::string::npos) return message + " lacks " + part;
    }
    if (read_file(path, 100) != "old") return "the old file changed";
    return file_count(folder) == 1 ? "" : "a temporary file was left";
}

}  // namespace

TEST_CASE("a file appears at commit, and nothing is left when there is none") {
    const std::string folder = folder_of_test(), path = folder + "/a";
    {
        AtomicFile file(path, Bytes{6});
        file.write("abc");
        file.write("def");
        REQUIRE_FALSE(std::filesystem::exists(path));
        file.commit();
    }
    REQUIRE(read_file(path, 100) == "abcdef");
    {
        AtomicFile file(path, Bytes{1});
        file.write("x");
    }
    REQUIRE(read_file(path, 100) == "abcdef");
    REQUIRE(file_count(folder) == 1);
    std::filesystem::remove_all(folder);
}

TEST_CASE("a name that a folder has is a disk error and leaves no temporary") {
    const std::string folder = folder_of_test();
    std::filesystem::create_directories(folder + "/a/b");
    try {
        AtomicFile file(folder + "/a", Bytes{1});
        file.write("x");
        file.commit();
        FAIL("a folder was replaced");
    } catch (const Error& error) {
        REQUIRE(error.code() == ExitCode::kDisk);
    }
    REQUIRE(file_count(folder) == 1);
    std::filesystem::remove_all(folder);
}

TEST_CASE("a full disk names the free space, keeps the old file and leaves no temporary") {
    const std::string folder = folder_of_test();
    Pipe result = make_pipe();
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const std::string text = fill_a_disk(folder);
        static_cast<void>(write_full(result.write_end.get(), text));
        ::_exit(0);
    }
    result.write_end.reset();
    std::string text(1000, '\0');
    const ssize_t length = read_full(result.read_end.get(),
                                     std::as_writable_bytes(std::span(text.data(), text.size())));
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    text.resize(static_cast<size_t>(length));
    std::filesystem::remove_all(folder);
    if (text == std::string{kCannotMount}) {
        std::cout << "SKIPPED: the message of a full disk because this user may not mount one "
                     "(root may)\n";
        return;
    }
    REQUIRE(text == "");
}

TEST_CASE(
    "a signal that ends a process takes its unfinished files away, and leaves finished ones") {
    const std::string folder = folder_of_test();
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            ::signal(number, SIG_DFL);  // the test's program has taken it
            remove_files_at_signals();
            AtomicFile finished(folder + "/finished", Bytes{1});
            finished.write("x");
            finished.commit();
            AtomicFile unfinished(folder + "/unfinished", Bytes{2});
            unfinished.write("y");
            ::raise(number);
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == number);
        std::vector<std::string> left;
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            left.push_back(entry.path().filename().string());
        CHECK(left == std::vector<std::string>{"finished"});
    }
    std::filesystem::remove_all(folder);
}
