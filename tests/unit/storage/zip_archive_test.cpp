
#include "storage/files/zip_archive.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/new_files.h"
#include "base/text_bytes.h"
#include "storage/files/crc32.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

const std::string kModel = test::fixture_path("models/mlp.pt");

std::string zip_archive_path_of_test(const std::string& name) {
    return "/tmp/dsl_zip_test." + std::to_string(::getpid()) + "." + name;
}

std::string number(uint64_t value, size_t bytes) {
    return {reinterpret_cast<const char*>(&value), bytes};
}

// Returns an archive of one stored record "m/a" of four bytes. Local header [0, 33), content [33,
// 37), directory entry [37, 86), end record [86, 108).
std::string tiny_zip() {
    const uint32_t crc = 0xed82cd11;  // CRC of "abcd", from a published table
    const std::string sizes = number(crc, 4) + number(4, 4) + number(4, 4) + number(3, 2);
    const std::string common = number(20, 2) + number(0x800, 2) + number(0, 6) + sizes;
    return "PK\3\4" + common + number(0, 2) + "m/aabcd" + "PK\1\2" + number(20, 2) + common +
           std::string(16, '\0') + "m/a" + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) +
           number(49, 4) + number(37, 4) + number(0, 2);
}

std::string zip_archive_message_of(const std::string& content) {
    return error_of(ExitCode::kInput, [&] { (void)parse_zip("x.pt", bytes_in(content)); });
}

using Edit = std::function<void(std::string&)>;

Edit put(size_t at, uint64_t value, size_t bytes) {
    return [=](std::string& zip) { zip.replace(at, bytes, number(value, bytes)); };
}

// Runs python3 with SCRIPT. Returns nullopt if there is no python3.
std::optional<bool> python_accepts(const std::string& script, const std::string& path) {
    if (std::system("command -v python3 >/dev/null 2>&1") != 0) return std::nullopt;
    const std::string command = "python3 -c '" + script + "' " + path;
    return std::system(command.c_str()) == 0;
}

}  // namespace

TEST_CASE("the checksum of zip equals published values") {
    struct Row {
        std::string text;
        uint32_t crc;
    };
    const Row table[] = {{"", 0},
                         {"a", 0xe8b7be43},
                         {"123456789", 0xcbf43926},
                         {"The quick brown fox jumps over the lazy dog", 0x414fa339}};
    for (const Row& row : table) REQUIRE(crc32(bytes_in(row.text)) == row.crc);
}

TEST_CASE("an archive that PyTorch wrote lists its records, aligned, with their checksums") {
    const ZipArchive archive(kModel);
    REQUIRE(archive.root() == "mlp");
    REQUIRE(archive.records().size() == 19);
    const ZipRecord* weight = archive.find("data/0");
    REQUIRE(weight != nullptr);
    REQUIRE(weight->content_bytes == 8192);
    REQUIRE(archive.content(*weight).size() == 8192);
    REQUIRE(reinterpret_cast<uintptr_t>(weight->stored.data()) % 64 == 0);
    REQUIRE(crc32(weight->stored) == 0x0fcd0bda);  // `unzip -v` prints it
    REQUIRE(text_in(archive.content(*archive.find("byteorder"))) == "little");
    const ZipRecord* code = archive.find("code/__torch__/torch/nn/modules/linear.py");
    REQUIRE(code->is_deflated);
    REQUIRE(
        mentions(error_of(ExitCode::kInput, [&] { (void)archive.content(*code); }), "compressed"));
    REQUIRE(archive.find("mlp/data/0") == nullptr);
    REQUIRE_FALSE(archive.extra("ds_config.json"));
}

TEST_CASE("each hostile archive gets its message") {
    struct Bad {
        Edit edit;
        std::string message;
    };
    const Bad table[] = {
        {[](auto& z) { z.clear(); }, "too few"},
        {[](auto& z) { z.resize(21); }, "too few"},
        {[](auto& z) { z.pop_back(); }, "no zip directory"},
        {[](auto& z) { z += "x"; }, "no zip directory"},
        {put(86, 0, 4), "no zip directory"},
        {put(86 + 4, 1, 2), "a split zip archive"},
        {put(86 + 8, 2, 2), "a split zip archive"},
        {put(86 + 8, 0x00020002, 4), "too small for 2 "},
        {put(86 + 8, 0xFFFFFFFF, 4), "too small for 65535 "},
        {put(86 + 8, 0, 4), "are not a record"},
        {put(86 + 12, 48, 4), "must end"},
        {put(86 + 12, 0xFFFFFFFF, 4), "must end"},
        {put(86 + 16, 0xFFFFFFFF, 4), "must end"},
        {put(86 + 16, 0, 4), "must end"},
        {put(37, 0, 4), "directory is damaged"},
        {put(37 + 28, 4, 2), "directory is damaged"},
        {put(37 + 30, 1, 2), "directory is damaged"},
        {put(37 + 32, 0xFFFF, 2), "directory is damaged"},
        {put(37 + 34, 1, 2), "a split zip archive"},
        {put(37 + 8, 1, 2), "encrypted"},
        {put(37 + 10, 12, 2), "method 12, which is not supported"},
        {put(37 + 20, 5, 4), "two sizes differ"},
        {put(37 + 20, 0xFFFFFFFF, 4), "two sizes differ"},
        {put(37 + 20, 0x0000000500000005, 8), "reaches into the zip directory"},
        {put(37 + 20, 0xFFFFFFFFFFFFFFFF, 8), "reaches into the zip directory"},
        {put(37 + 42, 1, 4), "not where"},
        {put(37 + 42, 36, 4), "not where"},
        {put(37 + 42, 0xFFFFFFFF, 4), "not where"},
        {put(0, 0, 4), "not where"},
        {put(26, 0xFFFF, 2), "reaches into the zip directory"},
        {put(28, 5, 2), "reaches into the zip directory"},
        {put(8, 8, 2), "disagrees"},
        {put(30, 'n', 1), "disagrees"},
        {put(37 + 47, 'X', 1), "disagrees"},
        {put(37 + 47, 7, 1), "control characters"},
        {[](auto& z) { z[31] = z[84] = 'x'; }, "in no folder"},
        {[](auto& z) { z[30] = z[83] = '/'; }, "in no folder"},
        {[](auto& z) {
             const std::string entry = z.substr(37, 49);
             z.insert(86, entry);
             put(135 + 8, 0x00020002, 4)(z);
             put(135 + 12, 98, 4)(z);
         },
         "appears twice"},
        {[](auto& z) {
             std::string entry = z.substr(37, 49);
             entry[48] = 'b';
             z.insert(86, entry);
             put(135 + 8, 0x00020002, 4)(z);
             put(135 + 12, 98, 4)(z);
         },
         "overlaps"},
        {[](auto& z) {
             z = z.substr(86);
             put(8, 0, 8)(z);
             put(16, 0, 4)(z);
         },
         "no records"},
        {[](auto& z) { z.insert(86, "PK\6\7" + number(0, 4) + number(30, 8) + number(1, 4)); },
         "zip64 end record is not where"},
        {[](auto& z) { z.insert(86, "PK\6\7" + number(0, 4) + number(~0ULL, 8) + number(1, 4)); },
         "zip64 end record is not where"},
    };
    REQUIRE(zip_archive_message_of(tiny_zip()) == "accepted");
    for (const Bad& bad : table) {
        std::string zip = tiny_zip();
        bad.edit(zip);
        const std::string message = zip_archive_message_of(zip);
        INFO("row " << (&bad - table) << ": wanted '" << bad.message << "' got '" << message
                    << "'");
        REQUIRE(message.find("x.pt: ") == 0);
        REQUIRE(message.find(bad.message) != std::string::npos);
    }
}

TEST_CASE("an archive cut short anywhere is refused") {
    const std::string whole = read_file(kModel, 1 << 20);
    for (size_t length = 0; length < whole.size(); length += 61)
        REQUIRE(zip_archive_message_of(whole.substr(0, length)) != "accepted");
}

TEST_CASE("packing adds and replaces extra files and keeps every other record") {
    const std::string once = zip_archive_path_of_test("once.pt"),
                      twice = zip_archive_path_of_test("twice.pt");
    for (const uint64_t zip64_from : {uint64_t{0xFFFFFFFF}, uint64_t{100}, uint64_t{0}}) {
        pack_archive(kModel, once, {{"ds_config.json", "{}"}, {"data/notes", "old"}},
                     {.zip64_from = zip64_from});
        pack_archive(once, twice, {{"data/notes", std::string(1000, 'n')}, {"empty", ""}},
                     {.zip64_from = zip64_from});
        const ZipArchive before(kModel), after(twice);
        REQUIRE(after.root() == "mlp");
        REQUIRE(after.records().size() == before.records().size() + 3);
        for (size_t i = 0; i < before.records().size(); ++i) {
            const ZipRecord &a = before.records()[i], &b = after.records()[i];
            REQUIRE((a.name == b.name && a.is_deflated == b.is_deflated && a.crc32 == b.crc32));
            REQUIRE(a.content_bytes == b.content_bytes);
            REQUIRE(text_in(a.stored) == text_in(b.stored));
            REQUIRE(reinterpret_cast<uintptr_t>(b.stored.data()) % 64 == 0);
        }
        const std::span added = std::span(after.records()).last(3);
        REQUIRE(added[0].name == "extra/ds_config.json");
        REQUIRE(added[1].name == "extra/data/notes");
        REQUIRE(added[2].name == "extra/empty");
        REQUIRE(after.extra("ds_config.json") == "{}");
        REQUIRE(after.extra("data/notes") == std::string(1000, 'n'));
        REQUIRE(after.extra("empty") == "");
    }
    std::remove(once.c_str());
    std::remove(twice.c_str());
}

TEST_CASE("an archive packed onto itself twice with the same files does not change") {
    const std::string path = zip_archive_path_of_test("self.pt");
    pack_archive(kModel, path, {{"a", "1"}, {"b", "2"}});
    const std::string first = read_file(path, 1 << 20);
    pack_archive(path, path, {{"a", "1"}, {"b", "2"}});
    REQUIRE(read_file(path, 1 << 20) == first);
    std::remove(path.c_str());
}

TEST_CASE("Python's zipfile finds a packed archive sound, with and without zip64 sizes") {
    const std::string path = zip_archive_path_of_test("python.pt");
    const std::string script =
        "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; "
        "assert z.read(\"mlp/extra/c.json\") == b\"{}\"; assert len(z.namelist()) == 20; "
        "assert z.read(\"mlp/byteorder\") == b\"little\"; "
        "assert b\"forward\" in z.read(\"mlp/code/__torch__/torch/nn/modules/linear.py\")";
    for (const uint64_t zip64_from : {uint64_t{0xFFFFFFFF}, uint64_t{0}}) {
        pack_archive(kModel, path, {{"c.json", "{}"}}, {.zip64_from = zip64_from});
        const auto accepted = python_accepts(script, path);
        if (!accepted)
            std::cout << "SKIPPED: Python reading our archive because python3 is not installed\n";
        REQUIRE(accepted.value_or(true));
    }
    std::remove(path.c_str());
}

TEST_CASE("a packed copy has the mode of its model, and a file that is replaced keeps its own") {
    const TemporaryFolder folder;
    const std::string in = folder.path() + "/in.pt", out = folder.path() + "/out.pt";
    std::filesystem::copy_file(kModel, in);
    const auto mode_after = [&](const std::string& to, mode_t of_model) {
        std::filesystem::permissions(in, std::filesystem::perms{of_model});
        pack_archive(in, to, {{"notes", "x"}});
        return mode_of(to).value();
    };
    CHECK(mode_after(in, 0600) == 0600);
    CHECK(mode_after(in, 0664) == 0664);
    CHECK(mode_after(out, 0600) == 0600);
    CHECK(mode_after(out, 0644) == 0600);
}

TEST_CASE("a damaged extra file is found when it is read") {
    const std::string path = zip_archive_path_of_test("damaged.pt");
    pack_archive(kModel, path, {{"notes", "unmistakable"}});
    std::string content = read_file(path, 1 << 20);
    content[content.find("unmistakable") + 2] ^= 1;
    write_file_atomically(path, content);
    const ZipArchive archive(path);
    REQUIRE(
        mentions(error_of(ExitCode::kInput, [&] { (void)archive.extra("notes"); }), "checksum"));
    std::remove(path.c_str());
}

TEST_CASE("names that cannot be extra files and places that cannot be written are errors") {
    const std::string path = zip_archive_path_of_test("names.pt");
    for (const std::string name :
         {"", "/a", "a/", "a//b", ".", "../a", "a/..", "a\nb", "a\tb", "\x1b[2J"}) {
        INFO("name '" << name << "'");
        REQUIRE(mentions(error_of(ExitCode::kInput,
                                  [&] {
                                      pack_archive(kModel, path, {{name, ""}});
                                  }),
                         "is not a valid name for an extra file"));
    }
    REQUIRE(mentions(error_of(ExitCode::kInput,
                              [&] {
                                  pack_archive(kModel, path, {{std::string(201, 'a'), ""}});
                              }),
                     "is not a valid name for an extra file"));
    REQUIRE(::access(path.c_str(), F_OK) != 0);
    REQUIRE(mentions(
        error_of(ExitCode::kDisk, [&] { pack_archive(kModel, "/proc/nonexistent/x.pt", {}); }),
        "/proc/nonexistent/x.pt: "));
}
