// The handshake in which an agent that calls back identifies itself, before the first byte of the
// agent protocol. Bytes in, bytes out: no sockets, no clock, no threads.
//
//     agent    -> kJoinOpening (16); the rest of both directions is a channel (join_channel.h)
//     launcher -> kJoinOpening (16)
//                 or, to another version, in clear: 1 u8, length u32, text
//     agent    -> length u32, JoinIdentity
//     launcher -> 0 u8: joined; the agent protocol follows
//                 1 u8, length u32, text: refused
//
// A refusal through the channel comes from the launcher. A refusal in clear, or a channel that
// cannot be established, may come from anybody, so the agent tries again. Integers are
// little-endian.
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
// The largest number of bytes that a side sends before the verdict; neither side reads more.
inline constexpr size_t kJoinBytesMax = 16U << 10;

// The identity that an agent claims to have.
struct JoinIdentity {
    static constexpr const char* kWhat = "an agent's identity";
    // Returns the members that are sent (base/text/message.h).
    static auto wire_members(auto& m) { return std::tie(m.node, m.node_name, m.host_name); }

    std::optional<uint32_t> node;  // --node: its index among the hosts
    std::string node_name;  // --node-name: the launcher's name for its host; empty: not given
    std::string host_name;  // host name of the agent's machine, for messages

    bool operator==(const JoinIdentity&) const = default;
};

// The part of a handshake that is the same for the launcher and the agent.
class JoinHandshake {
  public:
    // Returns the bytes to send, each once.
    [[nodiscard]] std::string take_output() {
        output_ += std::exchange(channel_.to_connection(), {});
        return std::exchange(output_, {});
    }
    // Returns the reason for a refusal, in words for a log: for example, why the peer is not an
    // agent or launcher of this job.
    [[nodiscard]] const std::string& reason() const { return reason_; }
    // Returns the channel for the agent protocol once the agent has joined. The channel may already
    // contain bytes to send, and bytes that came after the handshake. Must be called only once.
    [[nodiscard]] JoinChannel take_channel() { return std::move(channel_); }

  protected:
    JoinHandshake(JoinSide side, const JoinKey& key) : channel_(side, key) {}

    JoinChannel channel_;
    std::string opening_;  // the other side's bytes so far, or a refusal in clear
    std::string said_;     // what the other side has sent through the channel
    std::string output_;
    std::string reason_;
    size_t bytes_ = 0;
    bool is_opened_ = false;
};

// The launcher's side of one connection.
class LauncherHandshake : public JoinHandshake {
  public:
    // The progress of the handshake.
    enum class State {
        kRunning,
        kProven,    // identity() is known; the caller must accept() or refuse()
        kRefused,   // the last bytes of output() say why; close after sending them
        kStranger,  // the peer uses another protocol: close without an answer
    };
    explicit LauncherHandshake(const JoinKey& key);

    // Takes bytes that came over the connection. REQUIRES: state kRunning.
    State feed(std::string_view bytes);
    // Returns the identity that the agent claims, from state kProven on.
    [[nodiscard]] const JoinIdentity& identity() const { return identity_; }
    // Returns the state after the last feed(), accept() or refuse().
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
    // The progress of the handshake.
    enum class State {
        kRunning,
        kJoined,       // the agent protocol follows
        kRefused,      // reason(): the launcher's words, proven to be its own
        kNotLauncher,  // reason(): something else answers there, or a launcher with another token
    };
    AgentHandshake(const JoinKey& key, const JoinIdentity& identity);

    // Takes bytes that came over the connection; returns the new state. REQUIRES: state kRunning.
    State feed(std::string_view bytes);

  private:
    State take_opening();
    State take_verdict();
    State end(State state, std::string reason);

    std::string identity_bytes_;
    bool is_introduced_ = false;
    State state_ = State::kRunning;
};

// The launcher to join, and the agent's identity.
struct JoinRequest {
    JoinEndpoint endpoint;
    std::string token;  // empty only over a Unix socket
    JoinIdentity identity;
    bool removes_socket = false;  // true: the Unix socket, which nobody else uses, is removed after
                                  // joining
    // The time for which the agent tries to connect. It tries again after 50 ms to 2 s if no
    // launcher listens yet, or if a different program listens at the endpoint.
    std::chrono::milliseconds connect_max{300'000};
};

// The connection to a launcher that has accepted the agent.
struct JoinedLauncher {
    UniqueFd socket;              // blocking, close-on-exec
    JoinChannel channel;          // for all bytes from here on
    std::string arrival_address;  // address of this end; empty over a Unix socket
};

// Joins the launcher in REQUEST. Throws Error{kHosts} if no launcher with the token answers within
// connect_max. Throws Error{kHosts} with the launcher's reason if the launcher refuses. Throws
// Error{kUsage} if a Unix socket belongs to another user or may be used by other users.
[[nodiscard]] JoinedLauncher join_launcher(const JoinRequest& request);

}  // namespace dslaunch::launch
