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

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/fd.h"
#include "base/text/message.h"
#include "launch/transport/join/join_channel.h"
#include "launch/transport/join/join_endpoint.h"

namespace dslaunch::launch {

using dslaunch::decode;
using dslaunch::encode;

inline constexpr std::string_view kJoinOpening = "dslaunch-join 1\n";
inline constexpr size_t kJoinIdentityBytesMax = 1024;
inline constexpr size_t kJoinRefusalBytesMax = 1024;
// The most that a side sends before the verdict: neither reads further.
inline constexpr size_t kJoinBytesMax = 16U << 10;

// The identity that an agent claims.
struct JoinIdentity {
    static constexpr const char* kWhat = "an agent's identity";
    static auto wire_members(auto& m) { return std::tie(m.node, m.node_name, m.host_name); }

    std::optional<uint32_t> node;  // --node: its place among the hosts
    std::string node_name;  // --node-name: the launcher's name for its host; empty: not given
    std::string host_name;  // host name of the agent's machine, for messages

    bool operator==(const JoinIdentity&) const = default;
};

// The part that both sides of a connection share.
class JoinHandshake {
  public:
    // Returns the bytes to send, each once.
    [[nodiscard]] std::string take_output() {
        output_ += std::exchange(channel_.to_connection(), {});
        return std::exchange(output_, {});
    }
    // Returns the reason of a refusal, or why the peer is not one, in words for a log.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    // Returns the channel, for the agent protocol, once joined. It may hold bytes for the
    // connection and later bytes of the other side. Called once.
    [[nodiscard]] JoinChannel take_channel() { return std::move(channel_); }

  protected:
    JoinHandshake(JoinSide side, const JoinKey& key) : channel_(side, key) {}

    JoinChannel channel_;
    std::string opening_;  // what came of it, or of a refusal in clear
    std::string said_;     // what the other side said through the channel
    std::string output_;
    std::string reason_;
    size_t bytes_ = 0;
    bool opened_ = false;
};

// The launcher's side of one connection.
class LauncherHandshake : public JoinHandshake {
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
    [[nodiscard]] const JoinIdentity& identity() const { return identity_; }
    [[nodiscard]] State state() const { return state_; }
    // Accept or refuse an agent in state kProven.
    void accept();
    void refuse(const std::string& reason);

  private:
    void take_opening();
    void take_identity();
    State end(State state, const std::string& reason);

    JoinIdentity identity_;
    State state_ = State::kRunning;
};

// The agent's side.
class AgentHandshake : public JoinHandshake {
  public:
    enum class State {
        kRunning,
        kJoined,       // the agent protocol follows
        kRefused,      // reason(): the launcher's words, proven to be its own
        kNotLauncher,  // reason(): something else answers there, or a launcher of another token
    };
    AgentHandshake(const JoinKey& key, const JoinIdentity& identity);

    State feed(std::string_view bytes);

  private:
    State take_opening();
    State take_verdict();
    State end(State state, std::string reason);

    std::string identity_bytes_;
    bool introduced_ = false;
    State state_ = State::kRunning;
};

struct JoinRequest {
    JoinEndpoint endpoint;
    std::string token;  // empty only over a Unix socket
    JoinIdentity identity;
    bool removes_socket = false;  // removes the Unix socket, which nobody else uses, when joined
    // The time for which it tries again, 50 ms to 2 s apart, when no launcher listens yet or
    // something else is in its place.
    std::chrono::milliseconds connect_max{300'000};
};

struct JoinedLauncher {
    UniqueFd socket;              // blocking, close-on-exec
    JoinChannel channel;          // for all that passes it from here on
    std::string arrival_address;  // address of this end; empty over a Unix socket
};

// Joins as REQUEST says. Throws Error{kHosts}: nobody with the token listens within the time, or
// the launcher refuses (its reason); Error{kUsage}: a Unix socket that belongs to somebody else or
// that others may use.
[[nodiscard]] JoinedLauncher join_launcher(const JoinRequest& request);

}  // namespace dslaunch::launch
