// The ends of files that other processes write, line by line.
#include "launcher/jobs/file_lines.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

TEST_CASE("of a long file the first and last whole lines are read, of a short one all") {
    struct Case {
        std::string content;
        FileEnds ends;
        std::string expected;
    };
    const Case cases[] = {
        {"", {4, 4}, ""},
        {"a\nb", {4, 4}, "a\nb"},
        {"a\nb", {4, 4, false}, "a\n"},
        {"12\n45\n78\n", {5, 4}, "12\n45\n78\n"},  // just both parts
        {"12\n45\n78\n", {4, 4}, "12\n78\n"},      // the middle line is in neither
        {"12\n45\n78\n", {3, 3}, "12\n78\n"},      // parts that are whole lines
        {"12\n45\n78\n", {2, 2}, ""},              // no whole line in either
        {"12\n45\n78\n9", {0, 4}, "78\n9"},        // the last line is being written
        {"12\n45\n78\n9", {0, 4, false}, "78\n"},
        {"123456789", {3, 3}, ""},
    };
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/file";
    for (const Case& each : cases) {
        INFO(each.content << " " << each.ends.first_bytes << " " << each.ends.last_bytes);
        write_file(path, each.content);
        CHECK(read_file_ends(path, each.ends) == each.expected);
    }
    CHECK(read_file_ends(folder.path() + "/none", {4, 4}) == std::nullopt);
}

TEST_CASE("a growing file gives each line once, also after it was replaced") {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/file";
    GrowingFile file(path);
    CHECK(file.read_new(false).empty());
    write_file(path, "one\ntw");
    CHECK(file.read_new(false) == "one\n");
    write_file(path + ".new", "four\n");
    {
        std::ofstream more(path, std::ios::app);
        more << "o\nthree\n";
    }
    std::filesystem::rename(path + ".new", path);
    CHECK(file.read_new(false) == "two\nthree\nfour\n");
    {
        std::ofstream more(path, std::ios::app);
        more << "fi";
    }
    CHECK(file.read_new(false).empty());
    CHECK(file.read_new(true) == "fi\n");
}
