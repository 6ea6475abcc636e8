// The handshake in which an agent that calls back and its launcher prove to each other that they
// hold the same token, before the first byte of the agent protocol. Bytes in, bytes out: no
// sockets, no clock, no threads.
//
//     agent    -> kJoinOpening (16), nonce A (32)
//     launcher -> kJoinOpening (16), nonce L (32)
//     agent    -> length u32, JoinIdentity, HMAC-SHA256(token, "agent"    0 A L identity) (32)
//     launcher -> 0 u8, 32 u32, HMAC-SHA256(token, "launcher" 0 A L identity) (32): joined
//                 1 u8, length u32, text: refused
//
// The nonces are random, so that nothing recorded can be played again; the agent proves itself
// first, so that a stranger who connects learns nothing to try tokens on. Integers are
// little-endian. A side reads no more bytes than wanted() says: nothing of what follows is
// swallowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr std::string_view kJoinOpening = "dslaunch-join 1\n";
inline constexpr size_t kJoinNonceBytes = 32;
inline constexpr size_t kJoinProofBytes = 32;
inline constexpr size_t kJoinIdentityBytesMax = 1024;
inline constexpr size_t kJoinRefusalBytesMax = 1024;

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

// Random bytes for one handshake. Throws Error{kSetup} without a source of randomness.
[[nodiscard]] std::string make_join_nonce();

enum class JoinSide { kAgent, kLauncher };
// [32] what SIDE sends to show that it holds TOKEN.
[[nodiscard]] std::string join_proof(JoinSide side, const std::string& token,
                                     std::string_view agent_nonce, std::string_view launcher_nonce,
                                     std::string_view identity);

// The launcher's side of one connection.
class LauncherHandshake {
  public:
    enum class State {
        kRunning,
        kProven,    // identity() holds; accept() or refuse() is up to the caller
        kRefused,   // the last bytes of output() say why; close after sending them
        kStranger,  // the peer uses another protocol: close without an answer
    };
    LauncherHandshake(std::string token, std::string nonce);

    // The number of bytes to read at most; 0: none any more.
    [[nodiscard]] size_t wanted() const;
    // REQUIRES: state kRunning, at most wanted() bytes.
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

  private:
    enum class Stage { kOpening, kIdentityLength, kIdentity, kOver };
    void take_opening();
    void take_identity();
    State stranger(const std::string& reason);

    std::string token_;
    std::string nonce_;
    std::string agent_nonce_;
    std::string buffer_;
    std::string output_;
    std::string identity_bytes_;
    JoinIdentity identity_;
    std::string reason_;
    size_t identity_length_ = 0;
    Stage stage_ = Stage::kOpening;
    State state_ = State::kRunning;
};

// The agent's side.
class AgentHandshake {
  public:
    enum class State {
        kRunning,
        kJoined,       // the agent protocol follows
        kRefused,      // reason(): the launcher's words, not yet proven to be its own
        kNotLauncher,  // reason(): something else answers there, or a launcher of another token
    };
    AgentHandshake(std::string token, std::string nonce, const JoinIdentity& identity);

    [[nodiscard]] size_t wanted() const;
    State feed(std::string_view bytes);
    [[nodiscard]] std::string take_output();
    [[nodiscard]] const std::string& reason() const { return reason_; }

  private:
    enum class Stage { kOpening, kVerdictHead, kVerdict, kOver };
    void take_opening();
    void take_verdict();
    State fail_with(State state, std::string reason);

    std::string token_;
    std::string nonce_;
    std::string launcher_nonce_;
    std::string identity_bytes_;
    std::string buffer_;
    std::string output_;
    std::string reason_;
    bool refused_ = false;
    size_t verdict_length_ = 0;
    Stage stage_ = Stage::kOpening;
    State state_ = State::kRunning;
};

}  // namespace dslaunch::launch
