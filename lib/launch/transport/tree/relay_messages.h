// The frames between a relay and the launcher (or the relay above it). They have the form of
// launch/protocol/frame.h, but their own kinds; the relay passes on the messages of agents without
// decoding them. docs/dev/agent-protocol.md, "The tree", describes the frames.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "launch/protocol/frame.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The kinds of frames to and from a relay, with their payloads.
enum class RelayFrameKind : uint16_t {
    // to the relay
    kHosts = 120,       // RelayHosts; the first frame
    kInput = 121,       // RelayBytes, for an agent's stdin
    kCredit = 122,      // RelayCredit
    kCloseInput = 123,  // RelayPlace
    kAbandon = 124,     // RelayPlace
    kPing = 125,        // empty
    // from the relay
    kHello = 130,       // RelayHello
    kPong = 131,        // empty
    kOutput = 132,      // RelayBytes, of an agent's stdout
    kDiagnostic = 133,  // RelayBytes: one line
    kEnded = 134,       // RelayEnded; this agent's last frame
};

inline constexpr uint32_t kRelayProtocolVersion = 1;

// A relay writes this before its first frame, as an agent writes kAgentGreeting.
inline constexpr std::string_view kRelayGreeting{"\0dslaunch-relay\n", 16};

// A relay may send this many bytes of one agent that the launcher has not taken yet. RelayCredit
// frames allow further bytes. A flood from one host then neither fills a relay's memory nor delays
// the other hosts' frames for long.
inline constexpr int64_t kRelayWindowBytes = 256 << 10;
// The largest number of bytes of one agent in a frame, so that other agents' frames can be sent in
// between.
inline constexpr size_t kRelayBytesMax = 64U << 10;

// Returns true if a relay may use KIND.
inline bool is_known(TransportKind kind) {
    return kind <= TransportKind::kOpenSsh;
}

// The first message of a relay. The hello of a different version may have more members.
struct RelayHello {
    static constexpr const char* kWhat = "a relay's hello";
    static constexpr uint32_t kVersion = kRelayProtocolVersion;
    // Returns the members that every version of this message has.
    static auto wire_beginning(RelayHello& m) { return std::tie(m.protocol_version); }

    uint32_t protocol_version = kRelayProtocolVersion;
    std::string version;  // DSL_VERSION
};

// Payload of RelayFrameKind::kHosts.
struct RelayHosts {
    static constexpr const char* kWhat = "a relay's hosts";
    TransportKind transport = TransportKind::kSsh;
    std::string ssh_config_path;     // see JobSpec; a file of the relay's host
    uint32_t fanout = 0;             // see JobSpec; at least 2
    std::vector<HostAddress> hosts;  // by place; place 0 is the relay's own host, never empty

    // Throws Error{kInternal} if there are no hosts, a port is invalid, or the fan-out is below 2.
    void check() const {
        constexpr int kPortMax = 65'535;
        for (const HostAddress& host : hosts) {
            if (host.port >= 0 && host.port <= kPortMax) continue;
            fail(ExitCode::kInternal, "a relay received the port {}, which is not valid",
                 host.port);
        }
        if (hosts.empty() || fanout < 2)
            fail(ExitCode::kInternal,
                 "a relay received {} hosts and a fan-out of {}, which is not valid", hosts.size(),
                 fanout);
    }
};

// Payload of RelayFrameKind::kCloseInput and kAbandon: one host of the relay.
struct RelayPlace {
    static constexpr const char* kWhat = "a relay's place";
    uint32_t place = 0;
};

// Payload of RelayFrameKind::kInput, kOutput and kDiagnostic.
struct RelayBytes {
    static constexpr const char* kWhat = "relayed bytes";
    uint32_t place = 0;
    std::string bytes;
};

// Payload of RelayFrameKind::kCredit: further bytes that the relay may send.
struct RelayCredit {
    static constexpr const char* kWhat = "a relay's credit";
    uint32_t place = 0;
    uint32_t bytes_count = 0;  // bytes that the launcher or relay above has taken
};

// Payload of RelayFrameKind::kEnded.
struct RelayEnded {
    static constexpr const char* kWhat = "the end of a relayed agent";
    uint32_t place = 0;
    std::string cause;         // see TransportEvent::text
    int32_t exit_status = -1;  // see TransportEvent
};

using RelayFrame = BasicFrame<RelayFrameKind>;
using RelayDecoder = BasicFrameDecoder<RelayFrameKind>;
// Returns the rules for the frames of a relay.
[[nodiscard]] inline const FrameRules& frame_rules(RelayFrameKind) {
    static constexpr FrameRules kRules{"a relay's frame", kFramePayloadBytesMax,
                                       [](uint16_t number) {
                                           using enum RelayFrameKind;
                                           const auto kind = static_cast<RelayFrameKind>(number);
                                           return (kind >= kHosts && kind <= kPing) ||
                                                  (kind >= kHello && kind <= kEnded);
                                       },
                                       kRelayGreeting, "relay"};
    return kRules;
}

// Returns a whole frame, ready to be written.
[[nodiscard]] inline std::string relay_frame(RelayFrameKind kind, std::string_view payload = {}) {
    return frame_bytes(frame_rules(kind), static_cast<uint16_t>(kind), payload);
}

}  // namespace dslaunch::launch
