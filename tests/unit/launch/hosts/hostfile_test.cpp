#include "launch/hosts/hostfile.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

const std::string kHostfiles = std::string(test::source_dir()) + "/hostfiles";

std::string message_of(const std::string& text, const std::string& name) {
    return test::error_of(ExitCode::kUsage, [&] { (void)parse_hostfile(text, name); });
}

}  // namespace

TEST_CASE("every bad hostfile gives the message written beside it") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kHostfiles + "/bad")) {
        const std::string path = entry.path().string();
        if (path.ends_with(".expected")) continue;
        ++files;
        INFO(path);
        const std::string name = entry.path().filename().string();
        const std::string expected = read_file(path + ".expected", 1U << 16);
        CHECK(message_of(read_file(path, 1U << 16), name) + "\n" == expected);
        // Each line of the message begins with its place: NAME:line:column: …
        for (const std::string& line : split(trim(expected), '\n')) {
            const auto parts = split(line, ':');
            REQUIRE(parts.size() >= 4);
            CHECK(parts[0] == name);
            CHECK(parse_int(parts[1]).value_or(0) >= 1);
            CHECK(parse_int(parts[2]).value_or(0) >= 1);
        }
    }
    CHECK(files >= 20);
}

TEST_CASE("the hostfiles given as examples are accepted") {
    const std::pair<const char*, size_t> rows[] = {{"localhost-2", 1}, {"cluster-4", 4},
                                                   {"uneven", 3},      {"gpus", 2},
                                                   {"ranges", 18},     {"addresses", 3}};
    for (const auto& [name, hosts] : rows) {
        INFO(name);
        CHECK(read_hostfile(kHostfiles + "/" + name).size() == hosts);
    }
}

TEST_CASE("every field of a host is read") {
    const auto hosts = parse_hostfile(
        "# first\r\n\r\nme@te1\tslots=3 port=2222 addr=[fd00::7] # why\r\n[::1] gpus=5,2", "h");
    REQUIRE(hosts.size() == 2);
    CHECK(hosts[0].name == "te1");
    CHECK(hosts[0].user == "me");
    CHECK(hosts[0].slots == 3);
    CHECK(hosts[0].port == 2222);
    CHECK(hosts[0].address == "fd00::7");
    CHECK(hosts[0].line == 3);
    CHECK(hosts[1].name == "[::1]");
    CHECK(hosts[1].gpus == std::vector<int>{5, 2});
    CHECK(hosts[1].slots == 2);
    CHECK(hosts[1].port == 0);
}

TEST_CASE("a range counts up, keeps its padding and its suffix") {
    const auto names = [](const std::string& text) {
        std::vector<std::string> result;
        for (const Host& host : parse_hostfile(text + " slots=1", "h")) result.push_back(host.name);
        return result;
    };
    CHECK(names("te[9-11]") == std::vector<std::string>{"te9", "te10", "te11"});
    CHECK(names("te[08-10].lan") == std::vector<std::string>{"te08.lan", "te09.lan", "te10.lan"});
    CHECK(names("n[0-0]") == std::vector<std::string>{"n0"});
    CHECK(names("n[1-4096]").size() == 4096);
}

TEST_CASE("hostile words are no host names") {
    const std::vector<std::string> hostile = {"",
                                              "-oProxyCommand=x",
                                              "a b",
                                              "a;b",
                                              "$(id)",
                                              "`id`",
                                              "a|b",
                                              "%h",
                                              "a\nb",
                                              "a/b",
                                              ".a",
                                              "_a",
                                              "a:1",
                                              "[::1",
                                              "[x]",
                                              "a@b",
                                              "\xc3\xa9",
                                              std::string("a\0b", 3),
                                              std::string("[::1\0;b]", 8),
                                              std::string(254, 'a')};
    for (const std::string& word : hostile) {
        INFO(printable(word));
        CHECK_FALSE(is_host_name(word));
    }
    for (const char* word : {"a", "te1", "10.0.0.1", "n-1.example.org", "[fe80::1]", "a_b"}) {
        INFO(word);
        CHECK(is_host_name(word));
    }
}

TEST_CASE("this machine is known by its names") {
    for (const char* name :
         {"localhost", "127.0.0.1", "127.8.8.8", "[::1]", "te1", "TE1", "te1.lan"}) {
        INFO(name);
        CHECK(is_this_machine(name, "te1"));
    }
    for (const char* name : {"te2", "te10", "10.0.0.1", "localhost2"}) {
        INFO(name);
        CHECK_FALSE(is_this_machine(name, "te1"));
    }
    CHECK_FALSE(is_this_machine("te1.a", "te1.b"));
}

TEST_CASE("a missing hostfile is an error that names it") {
    CHECK_THROWS_WITH(read_hostfile("/proc/nonexistent/hosts"),
                      Catch::Contains("/proc/nonexistent/hosts"));
    CHECK_THROWS_WITH(read_hostfile("/proc/self"),
                      Catch::Contains("is a folder: give a file with one host per line"));
    for (const char* yaml : {"hosts:\n  - node1\n", "---\nnode1 slots=1\n", "- node1\n"})
        CHECK_THAT(message_of(yaml, "h"),
                   Catch::Contains("this is YAML, but a hostfile has one host per line"));
}
