// The handshake in which an agent that calls back says who it is, before the first byte of the
// agent protocol. Bytes in, bytes out: no sockets, no clock, no threads.
//
//     agent    -> kJoinOpening (16); the rest of both directions is a channel (join_channel.h)
//     launcher -> kJoinOpening (16)
//                 or, to another version, in clear: 1 u8, length u32, text
//     agent    -> length u32, JoinIdentity
//     launcher -> 0 u8: joined; the agent protocol follows
//                 1 u8, length u32, text: refused
//
// A refusal through the channel is the launcher's; one in clear, or a channel that does not come
// about, may be anybody's, so the agent tries again. Integers are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/transport/join/join_channel.h"

namespace dslaunch::launch {

inline constexpr std::string_view kJoinOpening = "dslaunch-join 1\n";
inline constexpr size_t kJoinIdentityBytesMax = 1024;
inline constexpr size_t kJoinRefusalBytesMax = 1024;
// The most that a side sends before the verdict: neither reads further.
inline constexpr size_t kJoinBytesMax = 16U << 10;

// The identity that an agent claims.
struct JoinIdentity {
    std::optional<uint32_t> node;  // --node: its place among the hosts
    std::string node_name;  // --node-name: the launcher's name for its host; empty: not given
    std::string host_name;  // host name of the agent's machine, for messages

    bool operator==(const JoinIdentity&) const = default;
};
[[nodiscard]] std::string encode(const JoinIdentity& identity);
// Throws Error{kInternal} on malformed bytes.
[[nodiscard]] JoinIdentity decode_join_identity(std::string_view bytes);

// The launcher's side of one connection.
class LauncherHandshake {
  public:
    enum class State {
        kRunning,
        kProven,    // identity() holds; accept() or refuse() is up to the caller
        kRefused,   // the last bytes of output() say why; close after sending them
        kStranger,  // the peer uses another protocol: close without an answer
    };
    explicit LauncherHandshake(const JoinKey& key);

    // Takes bytes that came over the connection. REQUIRES: state kRunning.
    State feed(std::string_view bytes);
    // Bytes to send; each is returned once.
    [[nodiscard]] std::string take_output();
    [[nodiscard]] const JoinIdentity& identity() const { return identity_; }
    [[nodiscard]] State state() const { return state_; }
    // The reason why it was refused or is no agent, in words for a log.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    // The last word to an agent in state kProven.
    void accept();
    void refuse(const std::string& reason);
    // The channel, for the agent protocol, once accepted. It may hold bytes for the connection and
    // bytes that the agent has said since. Called once.
    [[nodiscard]] JoinChannel take_channel();

  private:
    void take_opening();
    void take_identity();
    void refuse_in_clear(const std::string& reason);
    State end(State state, const std::string& reason);

    JoinChannel channel_;
    std::string opening_;  // what came of it
    std::string said_;     // what the agent said through the channel
    std::string output_;
    JoinIdentity identity_;
    std::string reason_;
    size_t bytes_ = 0;
    bool opened_ = false;
    State state_ = State::kRunning;
};

// The agent's side.
class AgentHandshake {
  public:
    enum class State {
        kRunning,
        kJoined,       // the agent protocol follows
        kRefused,      // reason(): the launcher's words, proven to be its own
        kNotLauncher,  // reason(): something else answers there, or a launcher of another token
    };
    AgentHandshake(const JoinKey& key, const JoinIdentity& identity);

    State feed(std::string_view bytes);
    [[nodiscard]] std::string take_output();
    [[nodiscard]] const std::string& reason() const { return reason_; }
    // The channel, for the agent protocol, once joined. It may hold bytes that the launcher has
    // said since. Called once.
    [[nodiscard]] JoinChannel take_channel();

  private:
    State take_opening();
    State take_verdict();
    State end(State state, std::string reason);

    JoinChannel channel_;
    std::string identity_bytes_;
    std::string opening_;  // what came of it, or of a refusal in clear
    std::string said_;     // what the launcher said through the channel
    std::string output_;
    std::string reason_;
    size_t bytes_ = 0;
    bool opened_ = false;
    bool introduced_ = false;
    State state_ = State::kRunning;
};

}  // namespace dslaunch::launch
