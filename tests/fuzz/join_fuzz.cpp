// libFuzzer: whatever bytes a stranger sends, in whatever pieces, neither side of the join
// handshake crashes, hangs, reads on for ever, or believes it. The first byte is the size of the
// pieces; its lowest bit takes the token away, as over a Unix socket, where everything is believed
// but nothing may crash.
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
    const bool has_token = (data[0] & 1) == 0;
    static const JoinKey made("a token that the bytes do not hold");
    const JoinKey key = has_token ? made : JoinKey();
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    const auto play = [&](auto& side, auto running) {
        auto state = running;
        for (size_t at = 0; at < text.size() && state == running; at += piece) {
            state = side.feed(text.substr(at, piece));
        }
        static_cast<void>(side.take_output());
        return state;
    };
    LauncherHandshake launcher(key);
    const auto heard = play(launcher, LauncherHandshake::State::kRunning);
    DSL_CHECK(!has_token || heard != LauncherHandshake::State::kProven,
              "nobody is proven without the token");
    if (heard == LauncherHandshake::State::kProven) {
        DSL_CHECK(decode_join_identity(encode(launcher.identity())) == launcher.identity(),
                  "an identity is what its bytes say");
    }
    AgentHandshake agent(key, {});
    const auto told = play(agent, AgentHandshake::State::kRunning);
    DSL_CHECK(!has_token || (told != AgentHandshake::State::kJoined &&
                             told != AgentHandshake::State::kRefused),
              "nobody is obeyed without the token");
    return 0;
}
