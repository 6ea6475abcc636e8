// Frames between a launcher (or a relay) and a relay below it, in the outer form of
// launch/protocol/frame.h but with kinds of their own: what an agent says passes a relay unread.
// docs/dev/agent-protocol.md, "The tree", describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/protocol/frame.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

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

// The most bytes of one agent that may be on their way to the launcher before it has taken them
// (RelayCredit gives them back): a flood from one host neither fills a relay's memory nor keeps the
// other hosts' frames waiting long.
inline constexpr int64_t kRelayWindowBytes = 256 << 10;
// The most bytes of one agent in a frame: others' frames go in between.
inline constexpr size_t kRelayBytesMax = 64U << 10;

struct RelayHello {
    uint32_t protocol_version = kRelayProtocolVersion;
    std::string version;  // DSL_VERSION
};

struct RelayHosts {
    TransportKind transport = TransportKind::kSsh;
    std::string ssh_config_path;     // see JobSpec; a file of the relay's host
    uint32_t fanout = 0;             // see JobSpec; at least 2
    std::vector<HostAddress> hosts;  // by place; place 0 is the relay's own host, never empty
};

struct RelayPlace {
    uint32_t place = 0;
};

struct RelayBytes {
    uint32_t place = 0;
    std::string bytes;
};

struct RelayCredit {
    uint32_t place = 0;
    uint32_t bytes_count = 0;  // taken by whoever the relay speaks to
};

struct RelayEnded {
    uint32_t place = 0;
    std::string cause;         // see TransportEvent::text
    int32_t exit_status = -1;  // see TransportEvent
};

// A whole frame, ready to be written.
[[nodiscard]] std::string relay_frame(RelayFrameKind kind, std::string_view payload = {});

[[nodiscard]] std::string encode(const RelayHello& message);
[[nodiscard]] std::string encode(const RelayHosts& message);
[[nodiscard]] std::string encode(const RelayPlace& message);
[[nodiscard]] std::string encode(const RelayBytes& message);
[[nodiscard]] std::string encode(const RelayCredit& message);
[[nodiscard]] std::string encode(const RelayEnded& message);

// For one message type, as in decode_relay<RelayHosts>(bytes). Throws Error{kInternal} on malformed
// bytes; accepts no rest. A RelayHello of another version has only its number.
template <typename Message>
[[nodiscard]] Message decode_relay(std::string_view bytes);
template <>
RelayHello decode_relay<RelayHello>(std::string_view bytes);
template <>
RelayHosts decode_relay<RelayHosts>(std::string_view bytes);
template <>
RelayPlace decode_relay<RelayPlace>(std::string_view bytes);
template <>
RelayBytes decode_relay<RelayBytes>(std::string_view bytes);
template <>
RelayCredit decode_relay<RelayCredit>(std::string_view bytes);
template <>
RelayEnded decode_relay<RelayEnded>(std::string_view bytes);

struct RelayFrame {
    RelayFrameKind kind = RelayFrameKind::kPing;
    std::string payload;
};

// Works as FrameDecoder does.
class RelayDecoder {
  public:
    // With_greeting: everything up to and including kRelayGreeting is skipped.
    explicit RelayDecoder(bool with_greeting) : greeted_(!with_greeting) {}

    // Throws Error{kInternal} on more noise than allowed before the greeting.
    void append(std::string_view bytes);
    // Throws Error{kInternal} on a length over the limit or an unknown kind.
    [[nodiscard]] std::optional<RelayFrame> next();
    [[nodiscard]] bool greeted() const { return greeted_; }

  private:
    std::string buffer_;
    size_t used_ = 0;
    bool greeted_;
};

}  // namespace dslaunch::launch
