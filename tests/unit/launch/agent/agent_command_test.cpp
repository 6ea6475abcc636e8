#include "launch/agent/agent_command.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "launch/plan/join_token.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

AgentArguments parsed(const std::vector<std::string>& words) {
    return parse_agent_arguments(words, [](const std::string& name) -> std::optional<std::string> {
        if (name == "SLURMD_NODENAME") return "ts3";
        if (name == "OMPI_COMM_WORLD_RANK") return "5";
        if (name == "HOSTILE") return "a b;c";
        return std::nullopt;
    });
}

std::string written(const TemporaryFolder& folder, const std::string& text, mode_t mode) {
    const std::string path = folder.path() + "/token";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
}

}  // namespace

TEST_CASE("an agent is told where its launcher waits and who it is") {
    CHECK(parsed({"--stdio"}).stdio);
    const auto tcp = parsed({"--join", "10.0.0.1:29400", "--node", "3"});
    CHECK(tcp.join.endpoint.host == "10.0.0.1");
    CHECK(tcp.join.endpoint.port == 29400);
    CHECK(tcp.join.identity.node == 3U);
    CHECK(tcp.join.connect_max == std::chrono::seconds(300));
    const auto v6 = parsed({"--join=[fd00::1]:80", "--node-name-from", "SLURMD_NODENAME"});
    CHECK(v6.join.endpoint.host == "fd00::1");
    CHECK(v6.join.endpoint.text() == "[fd00::1]:80");
    CHECK(v6.join.identity.node_name == "ts3");
    const auto file = parsed({"--join", "unix:/run/x", "--node-from=OMPI_COMM_WORLD_RANK",
                              "--connect-timeout", "2.5", "--token-file", "t"});
    CHECK(file.join.endpoint.unix_path == "/run/x");
    CHECK(file.join.identity.node == 5U);
    CHECK(file.join.connect_max == std::chrono::milliseconds(2500));
    CHECK(file.token_file == "t");
}

TEST_CASE("a wrong agent command line is refused with what is meant") {
    struct Row {
        std::vector<std::string> words;
        std::string message;
    };
    const Row rows[] = {
        {{}, "--join HOST:PORT"},
        {{"--stdio", "--join", "a:1"}, "--join HOST:PORT"},
        {{"--join"}, "needs a value"},
        {{"--join", "a"}, "has no port"},
        {{"--join", "a:0"}, "port from 1 to 65535"},
        {{"--join", "a b:1"}, "no host name"},
        {{"--join", "unix:relative"}, "no absolute path"},
        {{"--join", "unix:/" + std::string(120, 'x')}, "too long"},
        {{"--join", "a:1", "--node", "-1"}, "not a node's number"},
        {{"--join", "a:1", "--node", "1", "--node-name", "x"}, "but not both"},
        {{"--join", "a:1", "--node-name", "a;b"}, "not a host name"},
        {{"--join", "a:1", "--node-name-from", "HOSTILE"}, "not a host name"},
        {{"--join", "a:1", "--node-from", "UNSET"}, "not set here"},
        {{"--join", "a:1", "--connect-timeout", "soon"}, "not a number of seconds"},
        {{"--token", "secret"}, "unknown option `--token`"},
    };
    for (const Row& row : rows) {
        INFO(row.message);
        CHECK_THROWS_WITH(parsed(row.words), Catch::Contains(row.message));
    }
}

TEST_CASE("a token file must be its owner's alone and hold a token") {
    const TemporaryFolder folder;
    CHECK(read_token_file(written(folder, "0123456789abcdef\n", 0600)) == "0123456789abcdef");
    CHECK_THROWS_WITH(read_token_file(written(folder, "0123456789abcdef\n", 0640)),
                      Catch::Contains("chmod 600"));
    CHECK_THROWS_WITH(read_token_file(written(folder, "0123456789abcdef\n", 0604)),
                      Catch::Contains("other users have access to it"));
    CHECK_THROWS_WITH(read_token_file(written(folder, "short\n", 0600)),
                      Catch::Contains("16 to 1024 characters"));
    CHECK_THROWS_WITH(read_token_file(written(folder, std::string(5000, 'x'), 0600)),
                      Catch::Contains("16 to 1024 characters"));
    CHECK_THROWS_WITH(read_token_file(folder.path() + "/none"), Catch::Contains("openssl rand"));
    CHECK_THROWS_WITH(read_token_file(folder.path()), Catch::Contains("not a plain file"));
}

// Closed forms: a text of n characters has n * log2(k) bits if it has k different characters, all
// equally often.
TEST_CASE("a token that repeats a few characters is refused, words and digits are not") {
    CHECK(token_bits(std::string(64, '7')) == 0);
    CHECK(token_bits("abababab") == Approx(8));
    CHECK(token_bits("0123456789abcdef") == Approx(64));
    CHECK(token_bits(make_token()) > 200);
    for (const std::string& token : {std::string(64, '7'), std::string("passwordpassword"),
                                     std::string("1111222233334444"), std::string(40, 'x') + "y"}) {
        INFO(token);
        CHECK_THROWS_WITH(choose_token(token, ""), Catch::Contains("could be guessed") &&
                                                       Catch::Contains("openssl rand -hex 32"));
    }
    CHECK(choose_token("correct horse battery staple", "") == "correct horse battery staple");
}

TEST_CASE("the token's variable is wiped when it is taken") {
    ::setenv(kTokenVariable, "0123456789abcdef", 1);
    const char* const place = std::getenv(kTokenVariable);
    CHECK(take_token_variable() == "0123456789abcdef");
    CHECK(std::getenv(kTokenVariable) == nullptr);
    CHECK(place[0] == '\0');  // the byte that /proc/PID/environ shows
    CHECK(take_token_variable().empty());
    CHECK(choose_token("0123456789abcdef", "") == "0123456789abcdef");
    CHECK_THROWS_WITH(choose_token("short", ""), Catch::Contains("DSLAUNCH_TOKEN"));
    CHECK(make_token().size() == 64);
    CHECK(make_token() != make_token());
}
