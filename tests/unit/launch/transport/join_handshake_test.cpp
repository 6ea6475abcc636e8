#include "launch/transport/join/join_handshake.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text/wire.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

const JoinKey& join_handshake_key() {
    static const JoinKey made(std::string(64, '7'));
    return made;
}
const JoinKey& other_key() {
    static const JoinKey made(std::string(64, '8'));
    return made;
}

const JoinIdentity kTe3{3, "te3", "pod-a"};

using Launcher = LauncherHandshake::State;
using Agent = AgentHandshake::State;

// Gives BYTES to SIDE in pieces of PIECE bytes while the handshake runs. Returns its last state.
template <typename Side>
auto feed(Side& side, std::string_view bytes, size_t piece = 1U << 20) {
    auto state = side.feed(bytes.substr(0, piece));
    for (size_t at = piece; at < bytes.size() && static_cast<int>(state) == 0; at += piece) {
        state = side.feed(bytes.substr(at, piece));
    }
    return state;
}

// Lets both sides talk until neither has anything to send, or one has ended. Returns the agent's
// state.
Agent talk(LauncherHandshake& launcher, AgentHandshake& agent, size_t piece = 1U << 20) {
    Agent state = Agent::kRunning;
    for (;;) {
        const std::string said = agent.take_output();
        if (!said.empty() && launcher.state() == Launcher::kRunning) feed(launcher, said, piece);
        const std::string answer = launcher.take_output();
        if (answer.empty() || state != Agent::kRunning) return state;
        state = feed(agent, answer, piece);
    }
}

}  // namespace

TEST_CASE("an identity has its place, its host's name and its machine's, in this order") {
    CHECK(encode(kTe3) == std::string("\3\0\0\0\3\0\0\0te3\5\0\0\0pod-a", 20));
    CHECK(decode<JoinIdentity>(encode(kTe3)) == kTe3);
    CHECK(decode<JoinIdentity>(encode(JoinIdentity{})) == JoinIdentity{});
    CHECK_THROWS_AS(decode<JoinIdentity>(encode(kTe3) + "x"), Error);
}

TEST_CASE("both sides agree, however the bytes are cut, and what follows stands in the channels") {
    for (const JoinKey& used : {join_handshake_key(), JoinKey()}) {
        for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) {
            LauncherHandshake launcher(used);
            AgentHandshake agent(used, kTe3);
            CHECK(talk(launcher, agent, piece) == Agent::kRunning);
            REQUIRE(launcher.state() == Launcher::kProven);
            CHECK(launcher.identity() == kTe3);
            launcher.accept();
            JoinChannel of_launcher = launcher.take_channel();
            of_launcher.say("the first frame");
            CHECK(agent.feed(of_launcher.to_connection()) == Agent::kJoined);
            of_launcher.to_connection().clear();
            JoinChannel of_agent = agent.take_channel();
            CHECK(of_agent.take_received() == "the first frame");
            of_agent.say("an answer");
            of_launcher.receive(of_agent.to_connection());
            CHECK(of_launcher.take_received() == "an answer");
        }
    }
}

TEST_CASE("an agent with another token is turned away, and does not take that for the last word") {
    LauncherHandshake launcher(join_handshake_key());
    AgentHandshake agent(other_key(), kTe3);
    CHECK(talk(launcher, agent) == Agent::kNotLauncher);
    CHECK(launcher.state() == Launcher::kRefused);
    CHECK(launcher.reason() == "its token differs from this job's token");
    CHECK_THAT(agent.reason(), Catch::Contains("does not have this agent's token"));
}

TEST_CASE("a refusal through the channel is the launcher's, one in clear may be anybody's") {
    LauncherHandshake launcher(join_handshake_key());
    AgentHandshake agent(join_handshake_key(), kTe3);
    talk(launcher, agent);
    REQUIRE(launcher.state() == Launcher::kProven);
    launcher.refuse("\x1b[2Jno node 3");
    CHECK(agent.feed(launcher.take_output()) == Agent::kRefused);
    CHECK(agent.reason() == "\\x1b[2Jno node 3");

    AgentHandshake told_in_clear(join_handshake_key(), kTe3);
    CHECK(feed(told_in_clear, std::string("\x01\x06\0\0\0go off", 11)) == Agent::kNotLauncher);
    AgentHandshake told_before_proof(join_handshake_key(), kTe3);
    CHECK(feed(told_before_proof, std::string(kJoinOpening) + std::string("\x01\2\0\0\0no", 7)) ==
          Agent::kNotLauncher);
}

TEST_CASE("what an agent said once proves nothing to another connection") {
    LauncherHandshake first(join_handshake_key());
    AgentHandshake agent(join_handshake_key(), kTe3);
    const std::string opening = agent.take_output();
    feed(first, opening);
    agent.feed(first.take_output());
    const std::string recorded = agent.take_output();
    feed(first, recorded);
    REQUIRE(first.state() == Launcher::kProven);
    LauncherHandshake second(join_handshake_key());
    CHECK(feed(second, opening) == Launcher::kRunning);
    CHECK(feed(second, recorded) == Launcher::kRefused);
}

TEST_CASE("whoever speaks something else is known at the first byte that differs") {
    for (const std::string text :
         {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "SSH-2.0-x\r\n", "dslaunxx"}) {
        LauncherHandshake launcher(join_handshake_key());
        feed(launcher, text, 1);
        CHECK(launcher.state() == Launcher::kStranger);
        CHECK(launcher.take_output().empty());
        AgentHandshake agent(join_handshake_key(), kTe3);
        feed(agent, text, 1);
        CHECK_THAT(agent.reason(), Catch::Contains("not a dslaunch that waits"));
    }
}

TEST_CASE("another version of the handshake is named on both sides") {
    LauncherHandshake launcher(join_handshake_key());
    feed(launcher, "dslaunch-join 2\n");
    CHECK(launcher.state() == Launcher::kRefused);
    CHECK_THAT(launcher.reason(), Catch::Contains("join protocol 1"));
    AgentHandshake refused(join_handshake_key(), kTe3);
    feed(refused, launcher.take_output());
    CHECK_THAT(refused.reason(), Catch::Contains("another version"));
    AgentHandshake agent(join_handshake_key(), kTe3);
    feed(agent, "dslaunch-join 2\n");
    CHECK_THAT(agent.reason(), Catch::Contains("another version"));
}

TEST_CASE("neither side reads on for ever, nor a text that is longer than it may be") {
    LauncherHandshake drowned(join_handshake_key());
    feed(drowned, std::string(kJoinOpening) + std::string("\x16\3\1\x3f\xff\1\0\x3f\xfb", 9) +
                      std::string(kJoinBytesMax, 'x'));
    CHECK(drowned.state() != Launcher::kRunning);
    // Over a Unix socket the bytes pass unencrypted. Only a stranger with the user's own rights can
    // send there.
    const JoinKey none;
    LauncherHandshake launcher(none);
    feed(launcher, std::string(kJoinOpening) + "\xff\xff\xff\x7f");
    CHECK(launcher.state() == Launcher::kRefused);
    AgentHandshake agent(none, kTe3);
    CHECK(feed(agent, std::string(kJoinOpening) + std::string("\x01\xff\xff\xff\x7f", 5)) ==
          Agent::kNotLauncher);
}
