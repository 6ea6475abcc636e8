// libFuzzer entry: sends any bytes, in pieces of any size, to the sides of the join handshake. If a
// stranger sends them, no side crashes, hangs, reads on without end, or believes the stranger. If
// the other side has proven itself, its bytes are an identity, a verdict or data of the protocol,
// or are refused. The lower bits of the first byte are the size of the pieces. Its two highest bits
// select the case:
//   00, 01  a stranger's bytes; 01: without a token, as over a Unix socket, where everything is
//           believed, but nothing may crash
//   10      bytes that a side with the token sends through the channel
//   11      bytes that are put onto the connection of two sides that have proven themselves
// It takes a millisecond to prove two sides, a hundred times as long as a stranger's bytes take.
// The fast build does this for one in kInputsPerProof of the inputs of 10 and 11, and treats the
// other inputs of 10 and 11 as 01 and 00.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "launch/transport/join/join_handshake.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

#ifdef DSL_FUZZ_FAST
constexpr size_t kInputsPerProof = 32;
#else
constexpr size_t kInputsPerProof = 1;
#endif

const JoinKey& key() {
    static const JoinKey made("a token that the bytes do not hold");
    return made;
}

// Calls TAKE with TEXT in pieces of PIECE bytes until it returns false.
template <typename Take>
void in_pieces(std::string_view text, size_t piece, const Take& take) {
    for (size_t at = 0; at < text.size(); at += piece) {
        if (!take(text.substr(at, piece))) return;
    }
}

void play_stranger(std::string_view text, size_t piece, bool has_token) {
    const JoinKey none;
    const JoinKey& used = has_token ? key() : none;
    const auto play = [&](auto& side, auto running) {
        auto state = running;
        in_pieces(text, piece, [&](std::string_view bytes) {
            state = side.feed(bytes);
            return state == running;
        });
        static_cast<void>(side.take_output());
        return state;
    };
    LauncherHandshake launcher(used);
    const auto heard = play(launcher, LauncherHandshake::State::kRunning);
    DSL_CHECK(!has_token || heard != LauncherHandshake::State::kProven,
              "nobody is proven without the token");
    if (heard == LauncherHandshake::State::kProven) {
        DSL_CHECK(decode<JoinIdentity>(encode(launcher.identity())) == launcher.identity(),
                  "an identity is what its bytes say");
    }
    AgentHandshake agent(used, {});
    const auto told = play(agent, AgentHandshake::State::kRunning);
    DSL_CHECK(!has_token || (told != AgentHandshake::State::kJoined &&
                             told != AgentHandshake::State::kRefused),
              "nobody is obeyed without the token");
}

// Passes the bytes between SIDE and CHANNEL, after its opening, until both have proven themselves
// to each other.
template <typename Side>
void prove(Side& side, JoinChannel& channel) {
    auto running = side.feed(kJoinOpening);
    static_cast<void>(running);
    std::string said = side.take_output();
    DSL_CHECK(said.starts_with(kJoinOpening), "an opening");
    said.erase(0, kJoinOpening.size());
    for (int turn = 0; turn < 4; ++turn) {
        channel.receive(said);
        running = side.feed(std::exchange(channel.to_connection(), {}));
        said = side.take_output();
    }
    DSL_CHECK(channel.proven(), "who holds the token is proven");
}

// Sends TEXT to the launcher from an agent with the token.
void say_to_launcher(std::string_view text, size_t piece) {
    LauncherHandshake launcher(key());
    JoinChannel agent(JoinSide::kAgent, key());
    prove(launcher, agent);
    using State = LauncherHandshake::State;
    in_pieces(text, piece, [&](std::string_view bytes) {
        agent.say(bytes);
        return launcher.feed(std::exchange(agent.to_connection(), {})) == State::kRunning;
    });
    if (launcher.state() == State::kRefused) return fuzz::check_shown(launcher.reason());
    if (launcher.state() != State::kProven) return;
    const std::string identity = encode(launcher.identity());
    DSL_CHECK(text.substr(sizeof(uint32_t)).starts_with(identity), "it is what was said");
    launcher.accept();
    agent.receive(launcher.take_output());
    DSL_CHECK(agent.take_received() == std::string(1, '\0'), "the verdict");
}

// Sends TEXT to the agent from a launcher with the token.
void say_to_agent(std::string_view text, size_t piece) {
    AgentHandshake agent(key(), {});
    JoinChannel launcher(JoinSide::kLauncher, key());
    prove(agent, launcher);
    using State = AgentHandshake::State;
    State state = State::kRunning;
    in_pieces(text, piece, [&](std::string_view bytes) {
        launcher.say(bytes);
        state = agent.feed(std::exchange(launcher.to_connection(), {}));
        return state == State::kRunning;
    });
    if (state == State::kRefused) fuzz::check_shown(agent.reason() + ".");
    if (state == State::kJoined) {
        DSL_CHECK(text.starts_with('\0'), "the verdict");
        const std::string rest = agent.take_channel().take_received();
        DSL_CHECK(text.substr(1).starts_with(rest), "what follows is the protocol's");
    }
}

// Puts TEXT onto a connection in use, as an attacker between the sides could. Nothing in TEXT may
// be believed.
void put_onto_connection(std::string_view text, size_t piece) {
    JoinChannel agent(JoinSide::kAgent, key());
    JoinChannel launcher(JoinSide::kLauncher, key());
    for (int turn = 0; turn < 2; ++turn) {
        launcher.receive(std::exchange(agent.to_connection(), {}));
        agent.receive(std::exchange(launcher.to_connection(), {}));
    }
    for (JoinChannel* side : {&launcher, &agent}) {
        DSL_CHECK(side->proven(), "a pair that has proven itself");
        try {
            in_pieces(text, piece, [&](std::string_view bytes) {
                side->receive(bytes);
                return true;
            });
        } catch (const Error& error) {
            DSL_CHECK(error.code() == ExitCode::kHosts, "{}", error.what());
            fuzz::check_shown(error.what());
        }
        DSL_CHECK(side->take_received().empty(), "bytes of somebody else");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const size_t piece = (data[0] & 0x3FU) + size_t{1};
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    enum Mode { kStranger, kWithoutToken, kThroughChannel, kOnConnection };
    const auto mode = static_cast<Mode>(data[0] >> 6);
    const bool proves = std::hash<std::string_view>()(text) % kInputsPerProof == 0;
    if (mode == kThroughChannel && proves) {
        say_to_launcher(text, piece);
        say_to_agent(text, piece);
    } else if (mode == kOnConnection && proves) {
        put_onto_connection(text, piece);
    } else {
        play_stranger(text, piece, mode == kStranger || mode == kOnConnection);
    }
    return 0;
}
