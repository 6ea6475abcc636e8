// The join transport with agents, strangers and starters, on real sockets of this machine.
#include "launch/transport/join/transport_join.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <map>
#include <thread>

#include "base/error.h"
#include "launch/process/spawn.h"
#include "launch/transport/join/join_handshake.h"
#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;
using Kind = TransportEvent::Kind;

namespace {

const std::string kToken(64, '7');

// A starter that receives the endpoint, runs SCRIPT, and starts the hosts from FIRST on.
class ScriptStarter final : public AgentStarter {
  public:
    ScriptStarter(std::string script, size_t first, std::string& endpoint)
        : script_(std::move(script)), first_(first), endpoint_(endpoint) {}
    std::string name() const override { return "script"; }
    std::vector<std::string> command(const std::vector<HostAddress>&,
                                     const std::string& endpoint) const override {
        endpoint_ = endpoint;
        return {"sh", "-c", script_};
    }
    void prepare_environment(EnvironmentList& environment,
                             const std::string& token) const override {
        set_variable(environment, "DSLAUNCH_TOKEN", token);
    }
    bool starts(size_t host) const override { return host >= first_; }
    bool says_host_is_lost(const std::string& line) const override {
        return line.find("is lost") != std::string::npos;
    }

  private:
    std::string script_;
    size_t first_;
    std::string& endpoint_;
};

// Serves a transport and remembers what happened to each host.
class Served {
  public:
    Served(size_t hosts, JoinSettings settings, const std::string& script = "exit 0",
           size_t first_started = 1000) {
        settings.starter = std::make_unique<ScriptStarter>(script, first_started, endpoint);
        if (!settings.endpoint.is_unix() && !settings.endpoint.host.empty()) {
            settings.token = kToken;
        }
        transport = make_join_transport(std::move(settings));
        std::vector<HostAddress> names(hosts);
        for (size_t i = 0; i < hosts; ++i) names[i].name = fmt::format("h{}", i);
        transport->start(names);
    }
    // Handles events until DONE returns true, or for LIMIT_MS.
    bool pump(const std::function<bool()>& done, int limit_ms = kHangMs) {
        return wait_until(
            [&] {
                for (const auto& event : transport->wait(std::chrono::milliseconds(5), -1)) {
                    if (event.kind == Kind::kBytes) bytes[event.host] += event.text;
                    if (event.kind == Kind::kDiagnostic) lines[event.host] += event.text;
                    if (event.kind == Kind::kEnded) ended[event.host] = event.text;
                }
                return done();
            },
            limit_ms);
    }

    std::string endpoint;
    std::unique_ptr<Transport> transport;
    std::map<size_t, std::string> bytes, lines, ended;
};

JoinSettings on_loopback(const Clock* clock = nullptr) {
    JoinSettings settings;
    settings.endpoint.host = "127.0.0.1";
    settings.clock = clock;
    return settings;
}

JoinRequest request_to(const Served& served, std::optional<uint32_t> node,
                       const std::string& token = kToken, const std::string& name = "") {
    JoinRequest request;
    request.endpoint = parse_join_endpoint(served.endpoint);
    request.token = token;
    request.identity = {node, name, "guest"};
    request.connect_max = std::chrono::milliseconds(kHangMs);
    return request;
}

// Returns the request of an agent with another token. Such an agent tries again for half a second,
// since a stranger may have answered.
JoinRequest with_another_token(const Served& served, uint32_t node) {
    JoinRequest request = request_to(served, node, "another token of good length");
    request.connect_max = std::chrono::milliseconds(500);
    return request;
}

// An agent that joins while the transport is served: its socket, or the error that it got.
struct Joining {
    UniqueFd socket;
    JoinChannel channel{JoinSide::kAgent, JoinKey()};
    std::string error;

    void say(std::string_view text) {
        channel.say(text);
        REQUIRE(write_full(socket.get(), std::string_view(channel.to_connection())) == 0);
        channel.to_connection().clear();
    }
    // Returns the next SIZE bytes that the launcher sends.
    std::string hear(size_t size) {
        std::string heard = channel.take_received();
        while (heard.size() < size) {
            char block[4096];
            const ssize_t n = ::recv(socket.get(), block, sizeof block, 0);
            if (n <= 0) break;
            channel.receive(std::string_view(block, static_cast<size_t>(n)));
            heard += channel.take_received();
        }
        return heard;
    }
};
Joining join_served(Served& served, const JoinRequest& request) {
    Joining result;
    std::atomic<bool> over{false};
    std::thread agent([&] {
        try {
            JoinedLauncher joined = join_launcher(request);
            result.socket = std::move(joined.socket);
            result.channel = std::move(joined.channel);
        } catch (const Error& error) {
            result.error = error.what();
        }
        over = true;
    });
    served.pump([&] { return over.load(); });
    agent.join();
    return result;
}

UniqueFd stranger(const Served& served, const std::string& bytes) {
    const JoinEndpoint endpoint = parse_join_endpoint(served.endpoint);
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(endpoint.port));
    ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        socket.reset();
        return socket;
    }
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    return socket;
}

// Returns true if the other side has closed SOCKET.
bool is_closed(const UniqueFd& socket) {
    char block[256];
    const ssize_t n = ::recv(socket.get(), block, sizeof block, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

}  // namespace

TEST_CASE("agents take their places by number, by name and by arrival, and bytes go both ways") {
    Served served(3, on_loopback());
    served.transport->send(2, "hello two");  // before any agent has come
    Joining by_name = join_served(served, request_to(served, std::nullopt, kToken, "h1"));
    Joining by_number = join_served(served, request_to(served, 2));
    Joining by_arrival = join_served(served, request_to(served, std::nullopt));
    REQUIRE(by_name.error.empty());
    REQUIRE(by_number.error.empty());
    REQUIRE(by_arrival.error.empty());
    by_arrival.say("I am zero");
    by_name.say("I am one");
    CHECK(served.pump([&] { return served.bytes.size() == 2; }));
    CHECK(served.bytes[0] == "I am zero");
    CHECK(served.bytes[1] == "I am one");
    CHECK(by_number.hear(9) == "hello two");
    // The agent notices that its input is closed; its own end is noticed here.
    served.transport->close_input(2);
    CHECK(wait_until([&] { return is_closed(by_number.socket); }, kHangMs));
    by_number.socket.reset();
    CHECK(served.pump([&] { return served.ended.count(2) == 1; }));
    CHECK_THAT(served.ended[2], Catch::Contains("closed the connection"));
    served.transport->abandon(0);
    CHECK(wait_until([&] { return is_closed(by_arrival.socket); }, kHangMs));
}

TEST_CASE("a stranger can neither join nor disturb: garbage, wrong tokens, silence, a port scan") {
    // Agents have all the time that they need; strangers lose a millisecond at each look.
    FakeClock clock;
    const std::chrono::milliseconds proof_max(200);
    JoinSettings settings = on_loopback(&clock);
    settings.proof_max = proof_max;
    settings.join_max = std::chrono::milliseconds(kHangMs);
    Served served(2, std::move(settings));
    const auto pump_in_time = [&](const std::function<bool()>& done) {
        return served.pump([&] {
            clock.sleep_for(std::chrono::milliseconds(1));
            return done();
        });
    };
    Joining first = join_served(served, request_to(served, 0));
    REQUIRE(first.error.empty());
    CHECK_THAT(join_served(served, with_another_token(served, 1)).error,
               Catch::Contains("no launcher at 127.0.0.1:") &&
                   Catch::Contains("does not have this agent's token"));
    std::vector<UniqueFd> crowd;
    crowd.push_back(stranger(served, "GET / HTTP/1.0\r\n\r\n"));
    crowd.push_back(stranger(served, std::string(100'000, 'x')));
    crowd.push_back(stranger(served, std::string(1'000, '\0')));
    crowd.push_back(stranger(served, "dslaunch-join 1\n"));  // and then nothing: a slow connection
    std::string endless(kJoinOpening);
    endless.append("\x16\3\1").append(40'000, '\xff');
    crowd.push_back(stranger(served, endless));
    crowd.push_back(stranger(served, ""));
    for (int i = 0; i < 300; ++i) stranger(served, "");  // opened and closed, as a scan does
    CHECK(pump_in_time([&] {
        return std::all_of(crowd.begin(), crowd.end(),
                           [](const UniqueFd& s) { return is_closed(s); });
    }));
    // A stranger that is alone and sends half of the opening has as much time as the others.
    const TimePoint came = clock.now();
    const UniqueFd slow = stranger(served, "dslaunch-join 1\n");
    CHECK(pump_in_time([&] { return is_closed(slow); }));
    CHECK(clock.now() - came >= proof_max);
    CHECK(served.bytes.empty());
    CHECK(served.ended.empty());
    // The first agent's connection was not disturbed, and the second agent joins as usual.
    Joining second = join_served(served, request_to(served, 1));
    CHECK(second.error.empty());
    first.say("still here");
    CHECK(served.pump([&] { return served.bytes[0] == "still here"; }));
}

TEST_CASE("idle connections cannot keep an agent out, however many") {
    const FakeClock clock;  // the time of the idle ones never ends
    Served served(1, on_loopback(&clock));
    std::vector<UniqueFd> idle;
    for (size_t i = 0; i < kUnprovenConnectionsMax + 50; ++i) {
        idle.push_back(stranger(served, "dslaunch-join 1\n"));
        REQUIRE(idle.back().valid());
    }
    CHECK(join_served(served, request_to(served, 0)).error.empty());
    // The job is complete: strangers are sent away at once, and the transport no longer listens.
    CHECK(served.pump([&] {
        return std::all_of(idle.begin(), idle.end(),
                           [](const UniqueFd& s) { return is_closed(s); });
    }));
    CHECK_FALSE(stranger(served, "").valid());
}

TEST_CASE("a second agent for a node and one of no node are told so, and the first stays") {
    Served served(2, on_loopback());
    Joining first = join_served(served, request_to(served, 1));
    REQUIRE(first.error.empty());
    CHECK_THAT(join_served(served, request_to(served, 1)).error,
               Catch::Contains("node 1 (h1) has joined already, from 127.0.0.1:"));
    CHECK_THAT(join_served(served, request_to(served, 2)).error,
               Catch::Contains("there is no node 2: this job has 2"));
    CHECK_THAT(join_served(served, request_to(served, std::nullopt, kToken, "h7")).error,
               Catch::Contains("no host `h7`"));
    CHECK_FALSE(is_closed(first.socket));
    CHECK(served.ended.empty());
}

TEST_CASE("hosts that did not come in time are told with who came and who was turned away") {
    FakeClock clock;
    JoinSettings settings = on_loopback(&clock);
    settings.join_max = std::chrono::milliseconds(1'500);
    Served served(3, std::move(settings));
    Joining one = join_served(served, request_to(served, 1));
    REQUIRE(one.error.empty());
    const Joining other = join_served(served, with_another_token(served, 2));
    REQUIRE_FALSE(other.error.empty());
    clock.sleep_for(std::chrono::milliseconds(1'499));
    served.pump([] { return true; });
    CHECK(served.ended.empty());
    clock.sleep_for(std::chrono::milliseconds(1));
    served.pump([] { return true; });
    CHECK(served.ended.size() == 2);
    CHECK_THAT(served.ended[0], Catch::Contains("no agent joined as node 0 within 1.5 s (1 of 3"));
    CHECK_THAT(served.ended[0], Catch::Contains("h1 from 127.0.0.1:"));
    CHECK_THAT(served.ended[0], Catch::Contains("its token differs from this job's token"));
    CHECK(served.ended[2] == "no agent joined as node 2 within 1.5 s");
    CHECK_FALSE(is_closed(one.socket));
    // Too late: nobody listens.
    CHECK_FALSE(stranger(served, "").valid());
}

TEST_CASE("when the starter ends, the hosts that it did not start say its last words") {
    Served served(3, on_loopback(), "echo starting; echo h1: no route >&2; exit 3", 1);
    CHECK(served.pump([&] { return served.ended.size() == 2; }));
    CHECK(served.ended[1] == "h1: no route");
    CHECK_THAT(served.ended[2], Catch::Contains("script ended with 3: "));
    CHECK_THAT(served.ended[2], Catch::Contains("starting"));
    CHECK(served.lines[1] == "h1: no route");
    // Host 0 comes by itself.
    CHECK(join_served(served, request_to(served, 0)).error.empty());
}

TEST_CASE("a starter that is not there is told as its end") {
    class Missing final : public AgentStarter {
      public:
        std::string name() const override { return "srun"; }
        std::vector<std::string> command(const std::vector<HostAddress>&,
                                         const std::string&) const override {
            return {"no-such-program-anywhere"};
        }
        void prepare_environment(EnvironmentList&, const std::string&) const override {}
        bool says_host_is_lost(const std::string&) const override { return false; }
    };
    JoinSettings settings;
    settings.starter = std::make_unique<Missing>();
    const auto transport = make_join_transport(std::move(settings));
    transport->start({HostAddress{"h0", "", 0, ""}});
    const auto events = transport->wait(std::chrono::milliseconds(100), -1);
    REQUIRE(events.size() == 1);
    CHECK_THAT(events[0].text, Catch::Contains("no-such-program-anywhere"));
}

TEST_CASE("a line of the starter that tells of a lost host ends that host") {
    const TemporaryFolder folder;
    const std::string both_came = folder.path() + "/both-came";
    Served served(2, on_loopback(),
                  fmt::format("while [ ! -e {} ]; do sleep 0.02; done; "
                              "echo 'error: host h1 is lost'; sleep 9",
                              both_came),
                  0);
    const Joining zero = join_served(served, request_to(served, 0));
    const Joining one = join_served(served, request_to(served, 1));
    REQUIRE(zero.error.empty());
    REQUIRE(one.error.empty());
    std::ofstream(both_came) << "yes";
    CHECK(served.pump([&] { return served.ended.count(1) == 1; }));
    CHECK(served.ended[1] == "error: host h1 is lost");
    CHECK(served.ended.size() == 1);
}

TEST_CASE("a Unix socket stands in a folder of its own, needs no token, and is removed") {
    std::string folder;
    {
        Served served(1, JoinSettings{});
        REQUIRE(served.endpoint.starts_with("unix:/"));
        const std::string path = served.endpoint.substr(5);
        folder = path.substr(0, path.rfind('/'));
        struct stat status {};
        REQUIRE(::stat(folder.c_str(), &status) == 0);
        CHECK((status.st_mode & 07777) == 0700);
        REQUIRE(::stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
        CHECK(join_served(served, request_to(served, 0, "")).error.empty());
    }
    CHECK(::access(folder.c_str(), F_OK) != 0);
}

TEST_CASE("an agent joins no Unix socket that others may use") {
    const TemporaryFolder folder;
    JoinSettings settings;
    settings.endpoint.unix_path = folder.path() + "/open";
    Served served(1, std::move(settings));
    REQUIRE(::chmod((folder.path() + "/open").c_str(), 0666) == 0);
    CHECK_THAT(join_served(served, request_to(served, 0, "")).error,
               Catch::Contains("no other user can access"));
}

TEST_CASE("an agent waits for a launcher that is not there yet, and not for ever") {
    JoinRequest request;
    request.endpoint = parse_join_endpoint("127.0.0.1:1");
    request.token = kToken;
    request.connect_max = std::chrono::milliseconds(300);
    CHECK_THROWS_WITH(join_launcher(request),
                      Catch::Contains("no launcher at 127.0.0.1:1") && Catch::Contains("refused"));
}

TEST_CASE("a port that is taken names its holder, an address of another machine is refused") {
    Served served(1, on_loopback());
    JoinSettings again = on_loopback();
    again.token = kToken;
    again.endpoint = parse_join_endpoint(served.endpoint);
    const auto second = make_join_transport(std::move(again));
    CHECK_THROWS_WITH(second->start({HostAddress{"h0", "", 0, ""}}),
                      Catch::Contains(fmt::format("by process {}", ::getpid())));
    JoinSettings elsewhere;
    elsewhere.token = kToken;
    elsewhere.endpoint = parse_join_endpoint("192.0.2.77:29400");
    const auto third = make_join_transport(std::move(elsewhere));
    CHECK_THROWS_WITH(third->start({HostAddress{"h0", "", 0, ""}}), Catch::Contains("--listen"));
}

TEST_CASE("a line speaks of the host whose whole name stands in it") {
    const std::vector<HostAddress> hosts = {
        {"te1", "", 0, ""}, {"te11", "", 0, ""}, {"a.b", "", 0, ""}};
    CHECK(host_named_in("te11: refused", hosts) == 1U);
    CHECK(host_named_in("srun: error: Node failure on te1", hosts) == 0U);
    CHECK(host_named_in("cannot reach a.b.", hosts) == 2U);
    CHECK_FALSE(host_named_in("te111 is not ours", hosts));
    CHECK_FALSE(host_named_in("", hosts));
}
