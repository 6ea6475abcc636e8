// The time for which an agent trusts a silent launcher, and the facts about the connection that its
// kernel reports.
#include "launch/machine/launcher_silence.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>

#include "launch/process/timing.h"
#include "support/catch.h"
#include "support/listener.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

using std::chrono::milliseconds;

// A TCP connection over loopback, as an sshd has it. HERE is the server's end.
struct Connection {
    UniqueFd here;
    UniqueFd there;
    int server_port = 0;
    int client_port = 0;

    Connection() {
        const Listener listener = listen_on_loopback();
        there = connect_to(listener.port);
        sockaddr_in from{};
        socklen_t bytes = sizeof from;
        here = UniqueFd(
            ::accept4(listener.fd.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_CLOEXEC));
        REQUIRE(here.valid());
        server_port = listener.port;
        client_port = ntohs(from.sin_port);
    }
    [[nodiscard]] std::string ssh_connection() const {
        return fmt::format("127.0.0.1 {} 127.0.0.1 {}", client_port, server_port);
    }
};

}  // namespace

TEST_CASE("a machine answers if it acknowledged lately or owes nothing") {
    struct Row {
        int64_t since_ms;
        uint32_t unacknowledged, probes;
        bool answers;
    };
    const Row rows[] = {
        {0, 0, 0, true},         {15'000, 0, 0, true},     {15'001, 0, 0, true},
        {3'600'000, 0, 0, true},  // nothing was sent since
        {3'600'000, 0, 1, true},  // the one probe under way
        {15'001, 0, 2, false},   {15'001, 1, 0, false},    {15'000, 1, 0, true},
        {15'000, 9, 9, true},    {3'600'000, 1, 1, false},
    };
    for (const Row& row : rows) {
        CAPTURE(row.since_ms, row.unacknowledged, row.probes);
        const ConnectionSigns signs{milliseconds(row.since_ms), row.unacknowledged, row.probes};
        CHECK(signs.answers(milliseconds(15'000)) == row.answers);
    }
}

TEST_CASE("the kernel tells of sshd's connection what it tells of one's own") {
    const Connection connection;
    const Connection other;
    if (!signs_of_ssh(connection.ssh_connection()))
        return report_skipped("the signs of sshd's connection", "this kernel has no sock_diag");
    // A peer that reads nothing: the kernel holds unsent bytes and probes, on this connection only.
    REQUIRE(::send(connection.here.get(), "x", 1, MSG_NOSIGNAL) == 1);
    for (const Connection* one : {&connection, &other}) {
        const auto own = signs_of_socket(one->here.get());
        const auto of_ssh = signs_of_ssh(one->ssh_connection());
        REQUIRE(own);
        REQUIRE(of_ssh);
        CHECK(of_ssh->unacknowledged == own->unacknowledged);
        CHECK(of_ssh->probes == own->probes);
        CHECK(of_ssh->since_acknowledgement >= own->since_acknowledgement);
        CHECK(of_ssh->answers(kSilenceMax));
    }
    CHECK(signs_of_ssh(connection.ssh_connection() + "\n"));
    CHECK(signs_of_ssh(fmt::format("127.0.0.1 {} 127.0.0.1 {}", connection.server_port,
                                   connection.client_port)));  // the other end's view
    const Pipe pipe = make_pipe();
    CHECK_FALSE(signs_of_socket(pipe.read_end.get()));
}

TEST_CASE("what is no connection of this machine has no signs") {
    const Connection connection;
    const std::string port = std::to_string(connection.server_port);
    for (const std::string& text :
         {std::string(), std::string("x"), "127.0.0.1 1 127.0.0.1 " + port,
          fmt::format("127.0.0.1 {} 127.0.0.1", connection.client_port),
          connection.ssh_connection() + " 1", "localhost 1 localhost " + port,
          fmt::format("127.0.0.1 {} ::1 {}", connection.client_port, port),
          // In 16 bits the port would be right.
          fmt::format("127.0.0.1 {} 127.0.0.1 {}", connection.client_port + 65'536, port),
          fmt::format("127.0.0.1 {} 127.0.0.1 -{}", connection.client_port, port)}) {
        INFO(text);
        CHECK_FALSE(signs_of_ssh(text));
    }
}

TEST_CASE("a launcher whose machine answers is believed in for 60 s, one of this machine always") {
    const Connection connection;
    const auto hour = milliseconds(3'600'000);
    for (const LauncherLease& lease : {LauncherLease::over_socket(connection.here.get()),
                                       LauncherLease::over_ssh(connection.ssh_connection()),
                                       LauncherLease::over_ssh("no connection")}) {
        CHECK(lease.over(milliseconds(0)).empty());
        CHECK(lease.over(kSilenceMax + milliseconds(1)).empty());
        CHECK(lease.over(milliseconds(60'000)).empty());
        CHECK(lease.over(milliseconds(60'001)) == "the launcher has sent nothing for 60 s");
    }
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const UniqueFd here(ends[0]);
    const UniqueFd there(ends[1]);
    CHECK(LauncherLease::over_socket(here.get()).over(hour).empty());
    CHECK(LauncherLease::same_machine().over(hour).empty());
    CHECK(LauncherLease::over_stdio(true).over(hour).empty());
    CHECK_FALSE(LauncherLease::over_stdio(false).over(hour).empty());
}
