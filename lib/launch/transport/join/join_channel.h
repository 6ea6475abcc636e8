// The bytes of one connection between an agent that called back and its launcher: TLS 1.3 with the
// job's token as its only credential, or plain bytes (a Unix socket, whose kernel says who is at
// the other end). Nobody on the way can read TLS's bytes; changed, dropped, added or replayed ones
// end the connection before any is believed. Bytes in, bytes out: no sockets, no clock, no threads.
// Sources: RFC 8446, 2.2 and 4.2.11 (external pre-shared keys, psk_dhe_ke: a token that becomes
// known later opens no recorded connection); RFC 7914 (scrypt).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace dslaunch::launch {

enum class JoinSide { kAgent, kLauncher };

// The key of a job's connections. The 64 hex digits of make_token() are a key by themselves.
// Another token is stretched, so that each guess at it from a recorded handshake takes 32 MiB and
// some 60 ms. A process makes its key once.
class JoinKey {
  public:
    static constexpr size_t kBytes = 32;
    // Empty: no key, for a Unix socket.
    JoinKey() = default;
    // TOKEN "": an empty key. Throws Error{kSetup}: this machine's OpenSSL cannot make one. Blocks
    // for the time above.
    explicit JoinKey(const std::string& token);

    [[nodiscard]] bool empty() const { return empty_; }
    [[nodiscard]] const std::array<unsigned char, kBytes>& bytes() const { return bytes_; }

  private:
    std::array<unsigned char, kBytes> bytes_{};
    bool empty_ = true;
};

class JoinChannel {
  public:
    // KEY empty: the bytes pass as they are.
    JoinChannel(JoinSide side, const JoinKey& key);
    JoinChannel(JoinChannel&&) noexcept;
    JoinChannel& operator=(JoinChannel&&) noexcept;
    ~JoinChannel();

    // Takes bytes that came over the connection. Throws Error{kHosts} with the reason when the
    // other side does not hold the key or these are not its bytes; earlier bytes stay in
    // take_received(), and to_connection() may hold a last word for the other side.
    void receive(std::string_view bytes);
    // Returns the bytes that the other side has said, each once.
    [[nodiscard]] std::string take_received();
    // Gives BYTES back: take_received() returns them first.
    void put_back(std::string_view bytes) { received_.insert(0, bytes); }
    // Says BYTES to the other side, once it has proven itself.
    void say(std::string_view bytes);
    // Returns the bytes to send over the connection; the caller takes them away.
    [[nodiscard]] std::string& to_connection() { return to_connection_; }
    [[nodiscard]] const std::string& to_connection() const { return to_connection_; }
    // Returns true if the other side has proven that it holds the key.
    [[nodiscard]] bool proven() const;

  private:
    struct Tls;
    std::unique_ptr<Tls> tls_;  // null: the bytes pass as they are
    std::string received_;
    std::string to_connection_;
};

}  // namespace dslaunch::launch
