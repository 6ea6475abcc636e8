// A file's mark depends on all of its bytes, or, if the file is large, on its size and some of its
// bytes.
#include "job/files/data_mark.h"

#include <filesystem>
#include <fstream>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch {

using job::file_fingerprint;

TEST_CASE("a file's mark hangs on its bytes and not on its name") {
    const test::TemporaryFolder folder;
    const auto in = [&](const char* name) { return folder.path() + "/" + name; };
    test::write_file(in("a"), std::string(1000, 'x'));
    test::write_file(in("b"), std::string(1000, 'x'));
    test::write_file(in("longer"), std::string(1001, 'x'));
    std::string changed(1000, 'x');
    changed[500] = 'y';
    test::write_file(in("changed"), changed);
    CHECK(file_fingerprint(in("a")) == file_fingerprint(in("b")));
    CHECK(file_fingerprint(in("a")) != file_fingerprint(in("longer")));
    CHECK(file_fingerprint(in("a")) != file_fingerprint(in("changed")));
}

TEST_CASE("of a large file the size, both ends and blocks between them count") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/large";
    constexpr int64_t kBytes = int64_t{1} << 30;
    std::ofstream(path) << "";
    std::filesystem::resize_file(path, kBytes);
    const storage::Hash128 zeros = file_fingerprint(path);
    const auto with_byte = [&](int64_t at) {
        const auto put = [&](char byte) {
            std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(at);
            file.put(byte);
        };
        put('x');
        const storage::Hash128 mark = file_fingerprint(path);
        put('\0');
        return mark;
    };
    // Block b of 256 begins at b (size - 64 KiB) / 255.
    const int64_t last = kBytes - 65536;
    for (const int64_t at : {int64_t{0}, int64_t{65535}, last * 100 / 255 + 1, last, kBytes - 1})
        CHECK(with_byte(at) != zeros);
    CHECK(with_byte(100'000) == zeros);  // between two blocks
    std::filesystem::resize_file(path, kBytes + 1);
    CHECK(file_fingerprint(path) != zeros);
}

}  // namespace dslaunch
