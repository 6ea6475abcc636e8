// The encryption of one connection between an agent that called back and its launcher: TLS 1.3,
// with the job's token as the only credential. Over a Unix socket the bytes are sent plain, since
// the kernel reports the user at the other end. Nobody between the two sides can read TLS's bytes;
// if bytes are changed, dropped, added or replayed, the connection ends before it accepts any of
// them. A recorded connection cannot be decrypted later, even with the token. Takes and returns
// bytes; uses no sockets, no clock and no threads. Sources: RFC 8446, sections 2.2 and 4.2.11
// (external pre-shared keys, mode psk_dhe_ke); RFC 7914 (scrypt).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// The two ends of the connection.
enum class JoinSide { kAgent, kLauncher };

// The key of a job's connections. The 64 hex digits of make_token() are used as a key directly. Any
// other token is stretched, so that testing a guess against a recorded handshake takes 32 MiB and
// some 60 ms. A process makes its key only once.
class JoinKey {
  public:
    static constexpr size_t kBytes = 32;
    // Makes an empty object: no key, for a Unix socket.
    JoinKey() = default;
    // Makes the key from TOKEN; "" gives an empty key. Throws Error{kSetup} if this machine's
    // OpenSSL cannot make the key. Blocks while it stretches the token.
    explicit JoinKey(const std::string& token);

    // Returns true if there is no key.
    [[nodiscard]] bool empty() const { return is_empty_; }
    // Returns the key; zeros if there is none.
    [[nodiscard]] const std::array<unsigned char, kBytes>& bytes() const { return bytes_; }

  private:
    std::array<unsigned char, kBytes> bytes_{};
    bool is_empty_ = true;
};

// One end of the connection between an agent and its launcher: bytes in, bytes out.
class JoinChannel {
  public:
    // If KEY is empty, the bytes are passed on unchanged.
    JoinChannel(JoinSide side, const JoinKey& key);
    JoinChannel(JoinChannel&&) noexcept;
    JoinChannel& operator=(JoinChannel&&) noexcept;
    ~JoinChannel();

    // Takes bytes that came over the connection. Throws Error{kHosts} with the reason if the other
    // side does not have the key, or if the bytes were changed on the way. take_received() still
    // returns the bytes before the error, and to_connection() may contain a last message for the
    // other side.
    void receive(std::string_view bytes);
    // Returns the bytes that the other side has sent, each once.
    [[nodiscard]] std::string take_received();
    // Puts BYTES back: the next take_received() returns them first.
    void put_back(std::string_view bytes) { received_.insert(0, bytes); }
    // Sends BYTES to the other side, once that side has proven that it has the key.
    void say(std::string_view bytes);
    // Returns the bytes to send over the connection; the caller removes them.
    [[nodiscard]] std::string& to_connection() { return to_connection_; }
    [[nodiscard]] const std::string& to_connection() const { return to_connection_; }
    // Returns true if the other side has proven that it has the key.
    [[nodiscard]] bool proven() const;

  private:
    struct Tls;
    std::unique_ptr<Tls> tls_;  // null: the bytes pass as they are
    std::string received_;
    std::string to_connection_;
};

}  // namespace dslaunch::launch
