#include "storage/swap/io_settings.h"

#include "base/error.h"
#include "base/new_files.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace storage;

TEST_CASE("settings are stored for each disk and found again") {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/new/io-settings";
    CHECK_FALSE(stored_io_settings(path, "disk-a"));
    const IoSettings a{IoEngine::kUring, kib(256), 32, 3e9, 2e9};
    const IoSettings b{IoEngine::kThreads, mib(4), 4, 1e9, 5e8};
    store_io_settings(path, "disk-a", a);
    store_io_settings(path, "disk-b", b);
    CHECK(stored_io_settings(path, "disk-a") == a);
    CHECK(stored_io_settings(path, "disk-b") == b);
    store_io_settings(path, "disk-a", b);
    CHECK(stored_io_settings(path, "disk-a") == b);
    CHECK(stored_io_settings(path, "disk-b") == b);
    CHECK(read_file(path, 10000) ==
          "disk-b threads 4194304 4 1000000000 500000000\n"
          "disk-a threads 4194304 4 1000000000 500000000\n");
    CHECK_FALSE(stored_io_settings(path, "disk"));
    CHECK_FALSE(stored_io_settings("", "disk-a"));
}

TEST_CASE("a line of settings that makes no sense is not used") {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/io-settings";
    for (const char* line :
         {"d auto 4096 8 1 1", "d libaio 4096 8 1 1", "d io_uring 4095 8 1 1", "d io_uring 0 8 1 1",
          "d io_uring 4096 0 1 1", "d io_uring 4096 -1 1 1", "d io_uring 4096 8 x 1",
          "d io_uring 4096 8 1", "d io_uring 8796093022208 8 1 1", "", "d"}) {
        INFO(line);
        write_file_atomically(path, std::string(line) + "\n");
        CHECK_FALSE(stored_io_settings(path, "d"));
    }
    write_file_atomically(path, "d io_uring 4096 8 1 1\n");
    CHECK(stored_io_settings(path, "d"));
}

}  // namespace dslaunch::test
