#include "launch/transport/tree/tree_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "launch/protocol/frame.h"
#include "launch/transport/tree/relay_messages.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using std::chrono::milliseconds;
using Kind = TransportEvent::Kind;

namespace {

// The connections that a tree opens, and its messages on each. A test gives the answers.
class ScriptedBase final : public Transport {
  public:
    struct Connection {
        HostAddress address;
        std::string bytes;             // bytes to an agent
        RelayDecoder frames{false};    // frames to a relay
        std::vector<RelayFrame> told;  // the same frames, decoded
        bool held = false;
        bool closed = false;
        bool abandoned = false;
    };

    void start(const std::vector<HostAddress>& hosts) override {
        for (const HostAddress& host : hosts) static_cast<void>(add(host));
    }
    size_t add(const HostAddress& host) override {
        connections.emplace_back();
        connections.back().address = host;
        return connections.size() - 1;
    }
    void send(size_t host, std::string_view bytes) override {
        Connection& connection = connections[host];
        if (connection.address.program == RemoteProgram::kAgent) {
            connection.bytes.append(bytes);
            return;
        }
        connection.frames.append(bytes);
        while (auto frame = connection.frames.next()) connection.told.push_back(*frame);
    }
    void close_input(size_t host) override { connections[host].closed = true; }
    void abandon(size_t host) override { connections[host].abandoned = true; }
    void hold(size_t host, bool held) override { connections[host].held = held; }
    std::vector<TransportEvent> wait(milliseconds timeout, int) override {
        if (events_.empty()) std::this_thread::sleep_for(std::min(timeout, milliseconds(5)));
        return std::exchange(events_, {});
    }

    void say(size_t connection, std::string bytes) {
        events_.push_back({Kind::kBytes, connection, std::move(bytes), -1});
    }
    void end(size_t connection, std::string cause, int exit_status = -1) {
        events_.push_back({Kind::kEnded, connection, std::move(cause), exit_status});
    }

    std::vector<Connection> connections;

  private:
    std::vector<TransportEvent> events_;
};

std::string greeting() {
    return std::string(kRelayGreeting)
        .append(
            relay_frame(RelayFrameKind::kHello, encode(RelayHello{kRelayProtocolVersion, "0"})));
}

std::string output(uint32_t place, std::string bytes) {
    return relay_frame(RelayFrameKind::kOutput, encode(RelayBytes{place, std::move(bytes)}));
}

std::string ended(uint32_t place, std::string cause, int exit_status) {
    return relay_frame(RelayFrameKind::kEnded,
                       encode(RelayEnded{place, std::move(cause), exit_status}));
}

struct Tree {
    // Hosts h0, h1, … With fan-out 2, 5 hosts are h0 with h1 below it, and h2 with h3 and h4 below
    // it.
    explicit Tree(size_t hosts_count, TreeOptions options = {}) {
        if (options.fanout == 0) options.fanout = 2;
        auto owned = std::make_unique<ScriptedBase>();
        base = owned.get();
        transport = make_tree_transport(std::move(owned), options);
        std::vector<HostAddress> hosts;
        for (size_t i = 0; i < hosts_count; ++i) {
            hosts.emplace_back();
            hosts.back().name = fmt::format("h{}", i);
        }
        transport->start(hosts);
    }
    // Returns the events of the tree.
    std::vector<TransportEvent> wait() { return transport->wait(milliseconds(0), -1); }
    std::vector<TransportEvent> say(size_t connection, std::string bytes) {
        base->say(connection, std::move(bytes));
        return wait();
    }
    std::vector<TransportEvent> end(size_t connection, std::string cause, int exit_status = -1) {
        base->end(connection, std::move(cause), exit_status);
        return wait();
    }
    // Returns the last frame that the relay of CONNECTION got.
    [[nodiscard]] RelayFrame last(size_t connection) const {
        REQUIRE_FALSE(base->connections[connection].told.empty());
        return base->connections[connection].told.back();
    }
    // Returns "a h0" for an agent and "r h0" for a relay, by connection.
    [[nodiscard]] std::vector<std::string> opened() const {
        std::vector<std::string> names;
        for (const auto& connection : base->connections) {
            const bool is_relay = connection.address.program == RemoteProgram::kRelay;
            names.push_back(fmt::format("{} {}", is_relay ? 'r' : 'a', connection.address.name));
        }
        return names;
    }

    ScriptedBase* base = nullptr;
    std::unique_ptr<Transport> transport;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("few hosts are reached without a relay") {
    Tree tree(2);
    CHECK(tree.opened() == Names{"a h0", "a h1"});
    tree.transport->send(1, "hello");
    CHECK(tree.base->connections[1].bytes == "hello");
    const auto events = tree.say(1, "answer");
    REQUIRE(events.size() == 1);
    CHECK(events[0].host == 1);
    CHECK(events[0].text == "answer");
}

TEST_CASE("a relay is told its hosts and then what was said to them meanwhile") {
    Tree tree(5);
    CHECK(tree.opened() == Names{"r h0", "r h2"});
    tree.transport->send(4, "hello");
    CHECK(tree.base->connections[1].told.empty());
    CHECK(tree.say(1, std::string("noise of a login script\n").append(greeting())).empty());
    const auto& told = tree.base->connections[1].told;
    REQUIRE(told.size() == 2);
    const auto hosts = decode<RelayHosts>(told[0].payload);
    REQUIRE(hosts.hosts.size() == 3);
    CHECK(hosts.hosts[0].name == "h2");
    CHECK(hosts.hosts[2].name == "h4");
    CHECK(hosts.fanout == 2);
    CHECK(told[1].kind == RelayFrameKind::kInput);
    CHECK(decode<RelayBytes>(told[1].payload).place == 2);
    CHECK(decode<RelayBytes>(told[1].payload).bytes == "hello");
    // A host's bytes arrive as bytes of this host, however the stream is cut.
    const std::string bytes = output(0, "own") + output(1, "below");
    CHECK(tree.say(1, bytes.substr(0, 3)).empty());
    const auto events = tree.say(1, bytes.substr(3));
    REQUIRE(events.size() == 2);
    CHECK(events[0].host == 2);
    CHECK(events[0].text == "own");
    CHECK(events[1].host == 3);
    CHECK(events[1].text == "below");
    tree.transport->close_input(3);
    CHECK(tree.last(1).kind == RelayFrameKind::kCloseInput);
    tree.transport->abandon(4);
    CHECK(tree.last(1).kind == RelayFrameKind::kAbandon);
    CHECK(decode<RelayPlace>(tree.last(1).payload).place == 2);
    CHECK(tree.say(1, output(2, "late")).empty());
}

TEST_CASE("a host that cannot be a relay hides no other: the next one is, then none") {
    Tree tree(5);
    auto events = tree.end(1, "Permission denied");
    REQUIRE(events.size() == 1);
    CHECK(events[0].host == 2);
    CHECK(events[0].text == "Permission denied");
    CHECK(tree.opened() == Names{"r h0", "r h2", "r h3"});
    tree.transport->send(4, "hello");
    events = tree.end(2, "", 127);
    REQUIRE(events.size() == 1);
    CHECK(events[0].host == 3);
    CHECK(events[0].exit_status == 127);
    CHECK(tree.opened() == Names{"r h0", "r h2", "r h3", "a h4"});
    CHECK(tree.base->connections[3].bytes == "hello");
    // Two failures in a row are enough: the rest is reached without a relay.
    Tree deep(14);
    REQUIRE(deep.opened() == Names{"r h0", "r h7"});
    static_cast<void>(deep.end(0, "no"));
    static_cast<void>(deep.end(2, "no"));
    static_cast<void>(deep.wait());  // the others are not reached all at once
    CHECK(deep.opened() == Names{"r h0", "r h7", "r h1", "a h2", "a h3", "a h4", "a h5", "a h6"});
}

TEST_CASE("a relay that does not greet in time keeps its own host alone") {
    FakeClock clock;
    TreeOptions options;
    options.clock = &clock;
    Tree tree(5, options);
    clock.sleep_for(options.greeting_max - milliseconds(1));
    CHECK(tree.wait().empty());
    CHECK(tree.opened() == Names{"r h0", "r h2"});
    clock.sleep_for(milliseconds(1));
    CHECK(tree.wait().empty());
    CHECK(tree.opened() == Names{"r h0", "r h2", "r h3", "a h1"});
    CHECK_FALSE(tree.base->connections[1].abandoned);
    static_cast<void>(tree.say(1, greeting()));
    CHECK(decode<RelayHosts>(tree.base->connections[1].told[0].payload).hosts.size() == 1);
    const auto events = tree.say(1, output(0, "late but here"));
    REQUIRE(events.size() == 1);
    CHECK(events[0].host == 2);
}

TEST_CASE("a relay that is lost takes its subtree along and is named, its own host first") {
    Tree tree(5);
    static_cast<void>(tree.say(1, greeting() + output(1, "x")));
    static_cast<void>(tree.say(1, ended(2, "", 0)));
    auto events = tree.end(1, "the ssh connection was lost");
    REQUIRE(events.size() == 2);
    CHECK(events[0].host == 2);
    CHECK(events[0].text == "its relay on h2 is lost: the ssh connection was lost");
    CHECK(events[1].host == 3);
    CHECK(events[1].text == events[0].text);
    CHECK(events[1].exit_status == -1);

    static_cast<void>(tree.say(0, greeting()));
    events = tree.say(0, output(7, "x"));
    REQUIRE(events.size() == 2);
    CHECK_THAT(events[0].text,
               Catch::Contains("h0") && Catch::Contains("host index 7, but has 2 hosts"));
    CHECK(tree.base->connections[0].abandoned);
}

TEST_CASE("a relay that falls silent is lost, and one that answers is not") {
    FakeClock clock;
    TreeOptions options;
    options.silence_max = milliseconds(40);
    options.clock = &clock;
    Tree tree(5, options);
    const std::string pong = relay_frame(RelayFrameKind::kPong);
    static_cast<void>(tree.say(0, greeting()));
    static_cast<void>(tree.say(1, greeting()));
    for (int i = 0; i < 4; ++i) {
        clock.sleep_for(milliseconds(10));
        CHECK(tree.say(0, pong).empty());
    }
    clock.sleep_for(milliseconds(1));
    const auto events = tree.say(0, pong);
    REQUIRE(events.size() == 3);
    CHECK(events[0].host == 2);
    CHECK_THAT(events[0].text,
               Catch::Contains("relay on h2") && Catch::Contains("has sent nothing"));
    clock.sleep_for(milliseconds(40));
    CHECK(tree.say(0, pong).empty());
}

TEST_CASE("a relay of another version is refused by name, and the next host asked") {
    Tree tree(5);
    const auto events =
        tree.say(0, std::string(kRelayGreeting)
                        .append(relay_frame(RelayFrameKind::kHello, encode(RelayHello{99, "9"}))));
    REQUIRE(events.size() == 1);
    CHECK(events[0].host == 0);
    CHECK_THAT(events[0].text, Catch::Contains("protocol 99"));
    CHECK(tree.opened() == Names{"r h0", "r h2", "a h1"});
}

TEST_CASE("what was taken is given back as credit, and nothing while a host is held") {
    Tree tree(5);
    static_cast<void>(tree.say(1, greeting()));
    const size_t before = tree.base->connections[1].told.size();
    static_cast<void>(tree.say(1, output(1, std::string(kRelayWindowBytes / 4 - 1, 'x'))));
    CHECK(tree.base->connections[1].told.size() == before);
    static_cast<void>(tree.say(1, output(1, "x")));
    REQUIRE(tree.base->connections[1].told.size() == before + 1);
    REQUIRE(tree.last(1).kind == RelayFrameKind::kCredit);
    CHECK(decode<RelayCredit>(tree.last(1).payload).place == 1);
    CHECK(decode<RelayCredit>(tree.last(1).payload).bytes_count == kRelayWindowBytes / 4);
    tree.transport->hold(3, true);
    static_cast<void>(tree.say(1, output(1, std::string(kRelayWindowBytes, 'x'))));
    CHECK(tree.base->connections[1].told.size() == before + 1);
    tree.transport->hold(3, false);
    CHECK(decode<RelayCredit>(tree.last(1).payload).bytes_count == kRelayWindowBytes);
}

TEST_CASE("a host that only its relay does not reach is tried from here, and the error tells") {
    TreeOptions options;
    options.tries_itself = true;
    Tree tree(5, options);
    static_cast<void>(tree.say(1, greeting()));
    const bool works_from_here = GENERATE(true, false);
    CHECK(tree.say(1, ended(1, "from h2: Permission denied", -1)).empty());
    CHECK(tree.say(1, ended(2, "from h2: Permission denied", -1)).empty());
    REQUIRE(tree.opened() == Names{"r h0", "r h2", "a h3"});  // one agent is tried for all
    const auto events = works_from_here ? tree.say(2, std::string(kAgentGreeting))
                                        : tree.end(2, "Permission denied");
    REQUIRE(events.size() == 2);
    CHECK(events[0].host == 3);
    CHECK(events[1].host == 4);
    for (const TransportEvent& event : events) {
        CHECK_THAT(event.text, Catch::Contains("from h2: Permission denied"));
        CHECK((event.text.find("--fanout 0") != std::string::npos) == works_from_here);
    }
    CHECK(tree.base->connections[2].abandoned == works_from_here);
    // A program that ended has nothing to do with keys.
    Tree other(5, options);
    static_cast<void>(other.say(1, greeting()));
    CHECK(other.say(1, ended(1, "", 127)).size() == 1);
    CHECK(other.opened().size() == 2);
}

TEST_CASE("relay messages cut anywhere, or with bytes left over, are refused") {
    RelayHosts hosts{TransportKind::kOpenSsh, "/etc/c", 3, {}};
    hosts.hosts.push_back({"h0", "user", 2222, "10.0.0.1", RemoteProgram::kAgent});
    hosts.hosts.push_back({"h1", "", 0, "", RemoteProgram::kAgent});
    const std::string bytes = encode(hosts);
    const auto back = decode<RelayHosts>(bytes);
    CHECK(back.transport == TransportKind::kOpenSsh);
    CHECK(back.ssh_config_path == "/etc/c");
    REQUIRE(back.hosts.size() == 2);
    CHECK(back.hosts[0].user == "user");
    CHECK(back.hosts[0].port == 2222);
    CHECK(back.hosts[0].address == "10.0.0.1");
    for (size_t length = 0; length < bytes.size(); ++length) {
        CHECK_THROWS_AS(decode<RelayHosts>(std::string_view(bytes).substr(0, length)), Error);
    }
    CHECK_THROWS_AS(decode<RelayHosts>(bytes + "x"), Error);
    const auto end = decode<RelayEnded>(encode(RelayEnded{3, "why", -1}));
    CHECK(end.place == 3);
    CHECK(end.cause == "why");
    CHECK(end.exit_status == -1);
    RelayDecoder unknown(false);
    unknown.append(std::string("\0\0\0\0\x77\0", 6));
    CHECK_THROWS_AS(unknown.next(), Error);
    RelayDecoder endless(true);
    CHECK_THROWS_AS(endless.append(std::string(kGreetingNoiseBytesMax + 1, 'y')), Error);
}
