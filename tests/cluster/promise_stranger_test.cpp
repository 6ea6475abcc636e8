// P12: a stranger at the port where a launcher waits for its agents, without the token, neither
// joins nor learns anything nor disturbs the job: noise, other protocols, half a handshake, a
// recorded one, thousands of connections. Negative control, done by hand: with a launcher whose
// nonce is always the same, the recorded handshake takes the second agent's place.
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

namespace dslaunch::test {

using namespace launch;
namespace {

const std::string kToken = "canary-77ab01c2d3e4f5a6b7c8";

// Returns a stream socket at 127.0.0.1:PORT; not valid if nobody listens.
UniqueFd connect_to(int port) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        socket.reset();
    return socket;
}

// A socket that listens on a free port of 127.0.0.1, and that port.
std::pair<UniqueFd, int> listen_somewhere() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(socket.get(), generic, length) == 0);
    REQUIRE(::listen(socket.get(), 16) == 0);
    REQUIRE(::getsockname(socket.get(), generic, &length) == 0);
    return {std::move(socket), ntohs(address.sin_port)};
}

void say(const UniqueFd& socket, const std::string& bytes) {
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

// Returns the bytes that come until SIZE are there, the other end closes, or LIMIT_MS are over.
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

// Passes the bytes of one connection on in both directions and keeps the agent's first words.
class Eavesdropper {
  public:
    explicit Eavesdropper(int launcher_port) {
        auto [listener, port] = listen_somewhere();
        port_ = port;
        thread_ = std::thread([this, launcher_port, listener = std::move(listener)] {
            const UniqueFd agent(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
            const UniqueFd launcher = connect_to(launcher_port);
            while (pass(agent, launcher, true) && pass(launcher, agent, false)) {
            }
        });
    }
    Eavesdropper(const Eavesdropper&) = delete;
    Eavesdropper& operator=(const Eavesdropper&) = delete;
    ~Eavesdropper() { thread_.join(); }
    [[nodiscard]] int port() const { return port_; }
    // The agent's opening with its nonce, and its identity with the proof. REQUIRES: it has joined.
    [[nodiscard]] std::string opening() const { return recorded_.substr(0, kOpeningBytes); }
    [[nodiscard]] std::string proof() const { return recorded_.substr(kOpeningBytes); }
    [[nodiscard]] bool complete() const { return complete_; }

  private:
    static constexpr size_t kOpeningBytes = kJoinOpening.size() + kJoinNonceBytes;

    // Passes on what has come; false: the connection is over.
    bool pass(const UniqueFd& from, const UniqueFd& to, bool is_agent) {
        pollfd entry{from.get(), POLLIN, 0};
        if (::poll(&entry, 1, 5) <= 0) return true;
        char block[65536];
        const ssize_t n = ::recv(from.get(), block, sizeof block, 0);
        if (n <= 0) return false;
        // The verdict is the launcher's second word; after it come frames.
        if (!is_agent && ++launcher_words_ == 2) complete_ = true;
        if (is_agent && !complete_) recorded_.append(block, static_cast<size_t>(n));
        for (ssize_t sent = 0; sent < n;) {
            const ssize_t m =
                ::send(to.get(), block + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
            if (m <= 0) return false;
            sent += m;
        }
        return true;
    }
    int port_ = 0;
    int launcher_words_ = 0;
    std::string recorded_;  // others read it once complete_
    std::atomic<bool> complete_ = false;
    std::thread thread_;
};

struct Toll {
    int connections = 0;
    int joined = 0;       // verdict 0 to a stranger
    size_t heard = 0;     // bytes that are neither an opening, a nonce nor a refusal
    int tokens_seen = 0;  // tokens in anything that was heard
};

void judge(Toll& toll, const std::string& heard, bool after_opening) {
    toll.tokens_seen += mentions(heard, kToken) ? 1 : 0;
    if (!after_opening) {
        toll.heard += heard.size();
    } else if (!heard.empty()) {
        toll.joined += heard[0] == '\0' ? 1 : 0;
    }
}

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
        // A stranger of another handshake version is told so; nothing else gets an answer.
        if (!bytes.starts_with("dslaunch-join")) judge(toll, heard, false);
        ++toll.connections;
    }
}

// Opens a handshake and goes no further; the sockets stay.
std::vector<UniqueFd> stop_half_way(int port, int count, Toll& toll) {
    std::vector<UniqueFd> sockets;
    std::string nonces;
    for (int i = 0; i < count; ++i) {
        UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        say(socket, std::string(kJoinOpening) + make_join_nonce());
        const std::string heard = hear(socket, kJoinOpening.size() + kJoinNonceBytes, 5'000);
        REQUIRE(heard.size() == kJoinOpening.size() + kJoinNonceBytes);
        const std::string nonce = heard.substr(kJoinOpening.size());
        CHECK_FALSE(mentions(nonces, nonce));
        nonces += nonce;
        sockets.push_back(std::move(socket));
        ++toll.connections;
    }
    return sockets;
}

void replay(int port, const Eavesdropper& recorded, int count, Toll& toll) {
    for (int i = 0; i < count; ++i) {
        const UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        say(socket, recorded.opening());
        const size_t hello = kJoinOpening.size() + kJoinNonceBytes;
        REQUIRE(hear(socket, hello, 5'000).size() == hello);
        say(socket, recorded.proof());
        const std::string verdict = hear(socket, 4096, 5'000);
        CHECK_FALSE(verdict.empty());
        judge(toll, verdict, true);
        ++toll.connections;
    }
}

void knock(int port, int count, Toll& toll) {
    std::vector<UniqueFd> open;
    for (int i = 0; i < count; ++i) {
        UniqueFd socket = connect_to(port);
        REQUIRE(socket.valid());
        ++toll.connections;
        // One in six stays without a word.
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

int64_t peak_memory_kib(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6));
    return 0;
}

}  // namespace

TEST_CASE("P12: strangers at the port of a launcher neither join, nor read, nor disturb the job") {
    const TemporaryFolder folder, first_folder, second_folder;
    const std::string token_file = folder.path() + "/token";
    std::ofstream(token_file) << kToken << "\n";
    ::chmod(token_file.c_str(), 0600);
    const int port = listen_somewhere().second;  // the port is free again
    const std::string where = fmt::format("127.0.0.1:{}", port);
    JobProcess job(
        folder, {kDslaunch, "--launcher", "join", "--listen", where, "--token-file", token_file,
                 "--nnodes", "2", "--num_gpus", "1", "--device", "cpu", "--connect-timeout", "120",
                 kStub, "environment", folder.path() + "/seen"});
    REQUIRE(wait_until([&] { return connect_to(port).valid(); }, 10'000));
    Toll toll;
    make_noise(port, toll);
    // The agents have no names: whoever is accepted takes the next place.
    const auto agent = [&](int at) {
        return Words{kDslaunch,      "agent",   "--join", fmt::format("127.0.0.1:{}", at),
                     "--token-file", token_file};
    };
    const Eavesdropper eavesdropper(port);
    JobProcess first(first_folder, agent(eavesdropper.port()));
    REQUIRE(wait_until([&] { return eavesdropper.complete(); }, 10'000));
    replay(port, eavesdropper, 50, toll);
    const auto half = stop_half_way(port, 100, toll);
    knock(port, 3'000, toll);
    const size_t files = open_files(job.pid());
    const int64_t memory_kib = peak_memory_kib(job.pid());
    // The second agent comes through among all of them.
    JobProcess second(second_folder, agent(port));
    const int code = job.wait(60'000);
    INFO(job.err());
    CHECK(code == 0);
    CHECK(first.wait(10'000) == 0);
    CHECK(second.wait(10'000) == 0);
    for (const char* rank : {"0", "1"})
        CHECK_FALSE(folder.read(std::string("seen.") + rank).empty());
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/seen.2"));
    CHECK_FALSE(connect_to(port).valid());
    std::printf(
        "P12 %d strangers: %d joined, %zu bytes read, token seen %d times; the launcher had %zu "
        "files open, peak %lld MiB\n",
        toll.connections, toll.joined, toll.heard, toll.tokens_seen, files,
        static_cast<long long>(memory_kib >> 10));
    CHECK(toll.joined == 0);
    CHECK(toll.heard == 0);
    CHECK(toll.tokens_seen == 0);
    CHECK(files < 128 + 40);
    CHECK(memory_kib < 64 << 10);
}

}  // namespace dslaunch::test
