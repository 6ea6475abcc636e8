#include "launch/transport/join/join_channel.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cctype>
#include <climits>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

// The name of the only key. The handshake sends this name unencrypted.
constexpr std::string_view kKeyName = "dslaunch";
// The salt for the keys of all tokens. With this salt, the keys differ from the keys that another
// program makes from the same token.
constexpr std::string_view kSalt = "dslaunch join 1";
constexpr uint64_t kScryptN = 1U << 15;
constexpr uint64_t kScryptR = 8;
constexpr uint64_t kScryptP = 1;
constexpr uint64_t kScryptBytesMax = 64U << 20;
constexpr size_t kKeyDigits = 2 * JoinKey::kBytes;
// ChaCha20-Poly1305 comes first, since its key need not be changed, however much a job sends. AES
// is for machines whose OpenSSL allows only FIPS-approved algorithms.
constexpr const char* kCiphers = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kKeyCipher = {0x13, 0x03};

bool is_hex_key(const std::string& token) {
    return token.size() == kKeyDigits && std::all_of(token.begin(), token.end(), [](char c) {
               return std::isxdigit(static_cast<unsigned char>(c)) != 0;
           });
}

std::string library_reason() {
    const unsigned long code = ERR_peek_last_error();
    const char* reason = ERR_reason_error_string(code);
    return reason != nullptr ? reason : fmt::format("error {:x}", code);
}

struct ContextDeleter {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct SslDeleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using Context = std::unique_ptr<SSL_CTX, ContextDeleter>;

// Returns the TLS session that represents KEY; null if OpenSSL refuses it.
SSL_SESSION* session_of(SSL* ssl, const JoinKey& key) {
    SSL_SESSION* session = SSL_SESSION_new();
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kKeyCipher.data());
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, key.bytes().data(), key.bytes().size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
        return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
}

int use_key(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** id, size_t* id_length,
            SSL_SESSION** session) {
    *session = session_of(ssl, *static_cast<const JoinKey*>(SSL_get_app_data(ssl)));
    *id = reinterpret_cast<const unsigned char*>(kKeyName.data());
    *id_length = kKeyName.size();
    return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* id, size_t id_length, SSL_SESSION** session) {
    *session = nullptr;
    if (std::string_view(reinterpret_cast<const char*>(id), id_length) != kKeyName) return 1;
    *session = session_of(ssl, *static_cast<const JoinKey*>(SSL_get_app_data(ssl)));
    return *session != nullptr ? 1 : 0;
}

// Returns the TLS context of the process: TLS 1.3 only, no certificates, no tickets, no early data.
SSL_CTX* context() {
    static const Context made = [] {
        Context fresh(SSL_CTX_new(TLS_method()));
        SSL_CTX* raw = fresh.get();
        if (raw == nullptr || SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
            SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) != 1 ||
            SSL_CTX_set_ciphersuites(raw, kCiphers) != 1 || SSL_CTX_set_num_tickets(raw, 0) != 1) {
            fail(ExitCode::kSetup, "this machine's OpenSSL does not support TLS 1.3: {}",
                 library_reason());
        }
        SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_psk_use_session_callback(raw, use_key);
        SSL_CTX_set_psk_find_session_callback(raw, find_key);
        return fresh;
    }();
    return made.get();
}

// Returns, in words, the reason why OpenSSL gave up a connection; SIDE is our side of it.
std::string describe_failure(JoinSide side) {
    const bool is_agent = side == JoinSide::kAgent;
    switch (ERR_GET_REASON(ERR_peek_error())) {
        case SSL_R_BINDER_DOES_NOT_VERIFY:
            return "its token differs from this job's token";
        case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
            return is_agent ? "the launcher there does not have this agent's token"
                            : "it reports that this launcher does not have its token";
        case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
        case SSL_R_SSLV3_ALERT_BAD_RECORD_MAC:
            return "the data was changed in transit";
        default:
            return fmt::format(
                "{} ({})",
                is_agent ? "the program that answers there does not have this agent's token"
                         : "it did not prove that it has the token",
                library_reason());
    }
}

}  // namespace

JoinKey::JoinKey(const std::string& token) : is_empty_(token.empty()) {
    if (is_empty_) return;
    if (is_hex_key(token)) {
        for (size_t i = 0; i < kBytes; ++i) {
            bytes_[i] = static_cast<unsigned char>(std::stoi(token.substr(2 * i, 2), nullptr, 16));
        }
        return;
    }
    if (EVP_PBE_scrypt(token.data(), token.size(),
                       reinterpret_cast<const unsigned char*>(kSalt.data()), kSalt.size(), kScryptN,
                       kScryptR, kScryptP, kScryptBytesMax, bytes_.data(), bytes_.size()) != 1) {
        fail(ExitCode::kSetup,
             "this machine's OpenSSL cannot make a key from this token ({}); make the token with "
             "`openssl rand -hex 32`",
             library_reason());
    }
}

struct JoinChannel::Tls {
    JoinSide side;
    JoinKey key;
    std::unique_ptr<SSL, SslDeleter> ssl;
    BIO* in = nullptr;   // owned by ssl
    BIO* out = nullptr;  // owned by ssl
    bool proven = false;

    Tls(JoinSide its_side, const JoinKey& its_key)
        : side(its_side), key(its_key), ssl(SSL_new(context())) {
        in = BIO_new(BIO_s_mem());
        out = BIO_new(BIO_s_mem());
        DSL_CHECK(ssl && in != nullptr && out != nullptr, "no memory for a connection");
        SSL_set_bio(ssl.get(), in, out);
        SSL_set_app_data(ssl.get(), &key);
        if (side == JoinSide::kAgent) {
            // No certificate is trusted: a launcher that presents one instead of the key is
            // refused.
            SSL_set_verify(ssl.get(), SSL_VERIFY_PEER, nullptr);
            SSL_set_connect_state(ssl.get());
        } else {
            SSL_set_accept_state(ssl.get());
        }
    }

    void drain(std::string& bytes) const {
        char block[kBlockBytes];
        for (int n = 0; (n = BIO_read(out, block, sizeof block)) > 0;) {
            bytes.append(block, static_cast<size_t>(n));
        }
    }

    // Returns true if OpenSSL needs more bytes. Otherwise throws as receive() does.
    [[nodiscard]] bool wants_more(int result) const {
        const int error = SSL_get_error(ssl.get(), result);
        if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN) return true;
        const std::string reason = describe_failure(side);
        ERR_clear_error();
        fail(ExitCode::kHosts, "{}", reason);
    }

    void shake_hands() {
        ERR_clear_error();
        const int result = SSL_do_handshake(ssl.get());
        if (result != 1) {
            static_cast<void>(wants_more(result));
            return;
        }
        if (SSL_session_reused(ssl.get()) != 1) {
            fail(ExitCode::kHosts,
                 "the program that answers there does not have this agent's token");
        }
        proven = true;
    }

    void read_all(std::string& received) {
        char block[kBlockBytes];
        for (;;) {
            ERR_clear_error();
            const int n = SSL_read(ssl.get(), block, sizeof block);
            if (n > 0) {
                received.append(block, static_cast<size_t>(n));
            } else if (wants_more(n)) {
                return;
            }
        }
    }

    static constexpr size_t kBlockBytes = 16U << 10;  // the largest record
};

JoinChannel::JoinChannel(JoinSide side, const JoinKey& key) {
    if (key.empty()) return;
    tls_ = std::make_unique<Tls>(side, key);
    if (side == JoinSide::kLauncher) return;
    tls_->shake_hands();  // the agent speaks first
    tls_->drain(to_connection_);
}

JoinChannel::JoinChannel(JoinChannel&&) noexcept = default;
JoinChannel& JoinChannel::operator=(JoinChannel&&) noexcept = default;
JoinChannel::~JoinChannel() = default;

void JoinChannel::receive(std::string_view bytes) {
    if (!tls_) {
        received_.append(bytes);
        return;
    }
    DSL_CHECK(bytes.size() <= INT_MAX, "{} bytes at once", bytes.size());
    if (!bytes.empty()) {
        const int taken = BIO_write(tls_->in, bytes.data(), static_cast<int>(bytes.size()));
        DSL_CHECK(taken == static_cast<int>(bytes.size()), "no memory for {} bytes", bytes.size());
    }
    try {
        if (!tls_->proven) tls_->shake_hands();
        if (tls_->proven) tls_->read_all(received_);
    } catch (const Error&) {
        tls_->drain(to_connection_);
        throw;
    }
    tls_->drain(to_connection_);
}

std::string JoinChannel::take_received() {
    return std::exchange(received_, {});
}

void JoinChannel::say(std::string_view bytes) {
    DSL_CHECK(proven(), "the other side has not proven that it has the token");
    if (!tls_) {
        to_connection_.append(bytes);
        return;
    }
    while (!bytes.empty()) {
        const size_t length = std::min(bytes.size(), Tls::kBlockBytes);
        const int said = SSL_write(tls_->ssl.get(), bytes.data(), static_cast<int>(length));
        DSL_CHECK(said == static_cast<int>(length), "TLS took {} of {} bytes", said, length);
        bytes.remove_prefix(length);
    }
    tls_->drain(to_connection_);
}

bool JoinChannel::proven() const {
    return !tls_ || tls_->proven;
}

}  // namespace dslaunch::launch
