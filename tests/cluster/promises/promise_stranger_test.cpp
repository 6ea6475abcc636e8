// P12: a stranger without the token connects to the port at which a launcher waits for its agents.
// It cannot join, learns nothing, and does not disturb the job. It tries noise, other protocols,
// half a handshake, a recorded handshake, and thousands of connections. Negative control, done by
// hand: over channels that pass the bytes unchanged, the recorded handshake takes the second
// agent's place.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>

#include "cluster/promise.h"
#include "launch/protocol/frame.h"
#include "launch/transport/join/join_handshake.h"
#include "support/man_in_the_middle.h"
#include "support/sanitizer.h"

namespace dslaunch::test {

using namespace launch;
namespace {

const std::string kStrangerToken = "canary-77ab01c2d3e4f5a6b7c8";

void say(const UniqueFd& socket, const std::string& bytes) {
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

// Returns the bytes that arrive until there are SIZE bytes, the other end closes, or nothing
// arrives for LIMIT_MS.
std::string hear(const UniqueFd& socket, size_t size, int limit_ms) {
    std::string heard;
    while (heard.size() < size) {
        pollfd entry{socket.get(), POLLIN, 0};
        char block[4096];
        if (::poll(&entry, 1, limit_ms) <= 0) break;
        const ssize_t n =
            ::recv(socket.get(), block, std::min(sizeof block, size - heard.size()), 0);
        if (n <= 0) break;
        heard.append(block, static_cast<size_t>(n));
    }
    return heard;
}

struct Toll {
    int connections = 0;
    size_t heard = 0;     // bytes that do not belong to an opening, a handshake or a refusal
    int tokens_seen = 0;  // tokens in anything that was received
};

void make_noise(int port, Toll& toll) {
    Dice dice;
    std::vector<std::string> noise = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                      "\x16\x03\x01\x02",
                                      "SSH-2.0-x\r\n",
                                      "*1\r\n$4\r\nPING\r\n",
                                      std::string(1 << 20, '\0'),
                                      std::string(kAgentGreeting),
                                      "dslaunch-join 9\n"};
    for (int i = 0; i < 200; ++i) {
        std::string bytes(static_cast<size_t>(dice.between(1, 4096)), '\0');
        for (char& byte : bytes) byte = static_cast<char>(dice.between(0, 255));
        noise.push_back(bytes);
    }
    for (const std::string& bytes : noise) {
        const UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        say(socket, bytes);
        ::shutdown(socket.get(), SHUT_WR);
        const std::string heard = hear(socket, 1 << 20, 5'000);
        // A stranger with another handshake version gets an answer that says so. Nothing else gets
        // an answer.
        toll.tokens_seen += mentions(heard, kStrangerToken) ? 1 : 0;
        if (!bytes.starts_with("dslaunch-join")) toll.heard += heard.size();
        ++toll.connections;
    }
}

// Sends only the opening of a handshake on COUNT connections. Returns their sockets, which stay
// open.
std::vector<UniqueFd> stop_half_way(int port, int count, Toll& toll) {
    std::vector<UniqueFd> sockets;
    for (int i = 0; i < count; ++i) {
        UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        say(socket, std::string(kJoinOpening));
        REQUIRE(hear(socket, kJoinOpening.size(), 5'000) == kJoinOpening);
        sockets.push_back(std::move(socket));
        ++toll.connections;
    }
    return sockets;
}

// Sends, word for word, the bytes that an agent sent when it joined.
void replay(int port, const std::string& recorded, int count, Toll& toll) {
    for (int i = 0; i < count; ++i) {
        const UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        say(socket, recorded);
        const std::string heard = hear(socket, 1 << 16, 5'000);
        CHECK(heard.starts_with(kJoinOpening));
        toll.tokens_seen += mentions(heard, kStrangerToken) ? 1 : 0;
        ++toll.connections;
    }
}

void knock(int port, int count, Toll& toll) {
    std::vector<UniqueFd> open;
    for (int i = 0; i < count; ++i) {
        UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        ++toll.connections;
        // One connection in six stays open and silent.
        if (i % 6 == 0 && open.size() < 500) open.push_back(std::move(socket));
    }
}

size_t open_files(pid_t pid) {
    std::error_code error;
    size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error))
        count += entry.path().empty() ? 0 : 1;
    return count;
}

}  // namespace

TEST_CASE("P12: strangers at the port of a launcher neither join, nor read, nor disturb the job") {
    const TemporaryFolder folder, first_folder, second_folder;
    const std::string token_file = folder.path() + "/token";
    std::ofstream(token_file) << kStrangerToken << "\n";
    ::chmod(token_file.c_str(), 0600);
    const int port = listen_on_loopback().port;  // the port is free again
    const std::string where = fmt::format("127.0.0.1:{}", port);
    JobProcess job(
        folder, {kDslaunch, "--launcher", "join", "--listen", where, "--token-file", token_file,
                 "--nnodes", "2", "--num_gpus", "1", "--device", "cpu", "--connect-timeout", "120",
                 kStub, "environment", folder.path() + "/seen"});
    REQUIRE(wait_until([&] { return connect_to(port).valid(); }));
    Toll toll;
    make_noise(port, toll);
    // The agents have no names: each accepted agent takes the next free place.
    const auto agent = [&](int at) {
        return Words{kDslaunch,      "agent",   "--join", fmt::format("127.0.0.1:{}", at),
                     "--token-file", token_file};
    };
    const ManInTheMiddle listening([port] { return port; });
    JobProcess first(first_folder, agent(listening.port()));
    REQUIRE(wait_until([&] { return mentions(job.err(), "agent 1 of 2"); }));
    replay(port, listening.from_agents(), 50, toll);
    const auto half = stop_half_way(port, 100, toll);
    knock(port, 3'000, toll);
    const size_t files = open_files(job.pid());
    const int64_t memory_kib = peak_memory_kib(job.pid());
    const bool stranger_joined = mentions(job.err(), "agent 2 of 2");
    // The second agent can join in spite of all these connections.
    JobProcess second(second_folder, agent(port));
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 0);
    CHECK(first.wait() == 0);
    CHECK(second.wait() == 0);
    for (const char* rank : {"0", "1"})
        CHECK_FALSE(folder.read(std::string("seen.") + rank).empty());
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/seen.2"));
    CHECK_FALSE(connect_to(port).valid());
    std::printf(
        "P12 %d strangers: %d joined, %zu bytes read, token seen %d times; the launcher had %zu "
        "files open, peak %lld MiB\n",
        toll.connections, stranger_joined ? 1 : 0, toll.heard, toll.tokens_seen, files,
        static_cast<long long>(memory_kib >> 10));
    CHECK_FALSE(stranger_joined);
    CHECK(toll.heard == 0);
    CHECK(toll.tokens_seen == 0);
    CHECK(files < 128 + 40);
    if (!kSanitized) CHECK(memory_kib < 64 << 10);
}

}  // namespace dslaunch::test
