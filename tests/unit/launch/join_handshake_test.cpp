// The expected HMACs were made with Python's hmac module and agree with `openssl dgst -hmac`:
//   hmac.new(token, side + b"\0" + bytes(range(64)) + identity, hashlib.sha256).hexdigest()
#include "launch/transport/join/join_handshake.h"

#include <fmt/format.h>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef";

// The 32 bytes FIRST, FIRST + 1, ….
std::string counted(int first) {
    std::string bytes;
    for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + i);
    return bytes;
}

std::string hex(const std::string& bytes) {
    std::string text;
    for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
    return text;
}

const JoinIdentity kTe3{3, "te3", "pod-a"};

using Launcher = LauncherHandshake::State;
using Agent = AgentHandshake::State;

// Hands BYTES over in pieces of PIECE bytes, as far as they are wanted; the rest is returned.
template <typename Side>
std::string feed(Side& side, std::string bytes, size_t piece = 1U << 20) {
    while (!bytes.empty() && side.wanted() > 0) {
        const size_t length = std::min({piece, side.wanted(), bytes.size()});
        static_cast<void>(side.feed(bytes.substr(0, length)));
        bytes.erase(0, length);
    }
    return bytes;
}

}  // namespace

TEST_CASE("a proof is the HMAC-SHA256 of side, both nonces and identity") {
    const std::string identity = encode(kTe3);
    CHECK(hex(identity) == "030000000300000074653305000000706f642d61");
    CHECK(hex(join_proof(JoinSide::kAgent, kToken, counted(0), counted(32), identity)) ==
          "04b57e0c8047bdc2548afa926e4db1179138dae3d40c2b98f192959dbde3c0ef");
    CHECK(hex(join_proof(JoinSide::kLauncher, kToken, counted(0), counted(32), identity)) ==
          "445ccb7b6ec0e25df7ef1b32c6347b66bf97ed505fa874eb56f3fb97094a0849");
    const std::string nobody = encode(JoinIdentity{});
    CHECK(hex(join_proof(JoinSide::kAgent, "", counted(0), counted(32), nobody)) ==
          "aff775866e9418fe9187acec3e5ff589eaf8486eca302ae2c833058643abd524");
    CHECK(hex(join_proof(JoinSide::kLauncher, "", counted(0), counted(32), nobody)) ==
          "2008d0a42585decf8b6f23724c3917c87bec39543a783d31525157138664bcea");
}

TEST_CASE("both sides agree, however the bytes are cut, and leave what follows alone") {
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) {
        LauncherHandshake launcher(kToken, counted(32));
        AgentHandshake agent(kToken, counted(0), kTe3);
        CHECK(feed(launcher, agent.take_output(), piece).empty());
        CHECK(feed(agent, launcher.take_output(), piece).empty());
        CHECK(feed(launcher, agent.take_output() + "early", piece) == "early");
        REQUIRE(launcher.state() == Launcher::kProven);
        CHECK(launcher.identity() == kTe3);
        launcher.accept();
        CHECK(feed(agent, launcher.take_output() + "frames", piece) == "frames");
        CHECK(agent.wanted() == 0);
        CHECK(agent.reason().empty());
    }
}

TEST_CASE("an agent with another token is refused, and told so") {
    LauncherHandshake launcher(kToken, counted(32));
    AgentHandshake agent("another token, as long as this", counted(0), kTe3);
    feed(launcher, agent.take_output());
    feed(agent, launcher.take_output());
    feed(launcher, agent.take_output());
    CHECK(launcher.state() == Launcher::kRefused);
    feed(agent, launcher.take_output());
    CHECK_THAT(agent.reason(), Catch::Contains("token is not this job's"));
}

TEST_CASE("a launcher with another token is left, whatever it says") {
    // A launcher with another token cannot check the agent's proof, so it accepts blindly.
    AgentHandshake agent(kToken, counted(0), kTe3);
    static_cast<void>(agent.take_output());
    feed(agent, std::string(kJoinOpening) + counted(32));
    const std::string proof = join_proof(JoinSide::kLauncher, "a token that it has made up",
                                         counted(0), counted(32), encode(kTe3));
    const std::string verdict = std::string("\0\x20\0\0\0", 5) + proof;
    CHECK(feed(agent, verdict).empty());
    CHECK(agent.wanted() == 0);
    CHECK_THAT(agent.reason(), Catch::Contains("does not hold this agent's token"));
}

TEST_CASE("what an agent proved once proves nothing to another connection") {
    LauncherHandshake first(kToken, counted(32));
    AgentHandshake agent(kToken, counted(0), kTe3);
    const std::string opening = agent.take_output();
    feed(first, opening);
    feed(agent, first.take_output());
    const std::string recorded = agent.take_output();
    feed(first, recorded);
    REQUIRE(first.state() == Launcher::kProven);
    LauncherHandshake second(kToken, make_join_nonce());
    feed(second, opening);
    feed(second, recorded);
    CHECK(second.state() == Launcher::kRefused);
    // The launcher's own proof cannot be sent back to it either: the sides are part of what is
    // proved.
    LauncherHandshake third(kToken, counted(32));
    feed(third, opening);
    feed(third, recorded.substr(0, recorded.size() - kJoinProofBytes) +
                    join_proof(JoinSide::kLauncher, kToken, counted(0), counted(32), encode(kTe3)));
    CHECK(third.state() == Launcher::kRefused);
}

TEST_CASE("an identity that was changed on its way is refused") {
    LauncherHandshake launcher(kToken, counted(32));
    AgentHandshake agent(kToken, counted(0), kTe3);
    feed(launcher, agent.take_output());
    feed(agent, launcher.take_output());
    std::string bytes = agent.take_output();
    bytes[4] ^= 1;  // node 3 becomes node 2
    feed(launcher, bytes);
    CHECK(launcher.state() == Launcher::kRefused);
}

TEST_CASE("whoever speaks something else is known at the first byte that differs") {
    for (const std::string text :
         {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "SSH-2.0-x\r\n", "dslaunxx"}) {
        LauncherHandshake launcher(kToken, counted(32));
        feed(launcher, text, 1);
        CHECK(launcher.state() == Launcher::kStranger);
        CHECK(launcher.take_output().empty());
        AgentHandshake agent(kToken, counted(0), kTe3);
        static_cast<void>(agent.take_output());
        feed(agent, text, 1);
        CHECK_THAT(agent.reason(), Catch::Contains("no dslaunch that waits"));
    }
}

TEST_CASE("another version of the handshake is named on both sides") {
    LauncherHandshake launcher(kToken, counted(32));
    feed(launcher, "dslaunch-join 2\n" + counted(0));
    CHECK(launcher.state() == Launcher::kRefused);
    AgentHandshake refused(kToken, counted(0), kTe3);
    static_cast<void>(refused.take_output());
    feed(refused, launcher.take_output());
    CHECK_THAT(refused.reason(), Catch::Contains("join protocol 1"));
    AgentHandshake agent(kToken, counted(0), kTe3);
    feed(agent, "dslaunch-join 2\n" + counted(32));
    CHECK_THAT(agent.reason(), Catch::Contains("another version"));
}

TEST_CASE("lengths are bounded before anything is read") {
    LauncherHandshake launcher(kToken, counted(32));
    feed(launcher, std::string(kJoinOpening) + counted(0));
    feed(launcher, "\xff\xff\xff\x7f");
    CHECK(launcher.state() == Launcher::kStranger);
    AgentHandshake agent(kToken, counted(0), kTe3);
    feed(agent, std::string(kJoinOpening) + counted(32));
    feed(agent, std::string("\x01\xff\xff\xff\x7f", 5));
    CHECK_THAT(agent.reason(), Catch::Contains("nonsense"));
}

TEST_CASE("a refusal's text cannot drive a terminal") {
    AgentHandshake agent(kToken, counted(0), kTe3);
    feed(agent, std::string("\x01\x06\0\0\0\x1b[2Jhi", 11));
    CHECK(agent.reason() == "\\x1b[2Jhi");
}
