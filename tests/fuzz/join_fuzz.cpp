// libFuzzer: whatever bytes a stranger sends, in whatever pieces, neither side of the join
// handshake crashes, hangs, reads more than it wants, or believes it. The first byte is the size of
// the pieces.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "launch/transport/join/join_handshake.h"

using namespace dslaunch::launch;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    using namespace dslaunch;
    if (size_bytes == 0) return 0;
    const size_t piece = size_t{data[0]} + 1;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    const std::string nonce(kJoinNonceBytes, 'n');
    const auto play = [&](auto& side, auto running) {
        std::string_view rest = text;
        auto state = running;
        while (!rest.empty() && state == running && side.wanted() > 0) {
            const size_t length = std::min({piece, rest.size(), side.wanted()});
            state = side.feed(rest.substr(0, length));
            rest.remove_prefix(length);
            DSL_CHECK(side.wanted() <= kJoinIdentityBytesMax + kJoinProofBytes, "bounded");
        }
        return state;
    };
    LauncherHandshake launcher("a token that the bytes do not hold", nonce);
    DSL_CHECK(
        play(launcher, LauncherHandshake::State::kRunning) != LauncherHandshake::State::kProven,
        "nobody is proven without the token");
    AgentHandshake agent("a token that the bytes do not hold", nonce, {});
    DSL_CHECK(play(agent, AgentHandshake::State::kRunning) != AgentHandshake::State::kJoined,
              "nobody is obeyed without the token");
    return 0;
}
