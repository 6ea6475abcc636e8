#include "launch/transport/join/join_channel.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

const JoinKey& key() {
    static const JoinKey made(std::string(64, '7'));
    return made;
}

std::string hex(const JoinKey& made) {
    std::string text;
    for (const unsigned char byte : made.bytes()) text += fmt::format("{:02x}", byte);
    return text;
}

std::string take(JoinChannel& channel) {
    return std::exchange(channel.to_connection(), {});
}

struct Pair {
    JoinChannel launcher{JoinSide::kLauncher, key()};
    JoinChannel agent{JoinSide::kAgent, key()};

    // Runs the handshake. Afterwards both sides have proven themselves.
    Pair() {
        launcher.receive(take(agent));
        agent.receive(take(launcher));
        launcher.receive(take(agent));
        REQUIRE(agent.proven());
        REQUIRE(launcher.proven());
    }
};

// Returns the records of TLS in BYTES: type u8, version u16, length u16 (big-endian), content.
std::vector<std::string> records_of(std::string_view bytes) {
    std::vector<std::string> records;
    while (bytes.size() >= 5) {
        const size_t length = 5 + static_cast<size_t>(static_cast<unsigned char>(bytes[3])) * 256 +
                              static_cast<unsigned char>(bytes[4]);
        records.emplace_back(bytes.substr(0, length));
        bytes.remove_prefix(std::min(length, bytes.size()));
    }
    return records;
}

}  // namespace

// Expected: hashlib.scrypt(b"correct horse battery", salt=b"dslaunch join 1", n=32768, r=8, p=1,
// dklen=32, maxmem=1<<26).hex() of Python.
TEST_CASE("64 hex digits are a key by themselves, another token is stretched by scrypt") {
    CHECK(hex(JoinKey(std::string(32, 'a') + std::string(32, 'F'))) ==
          std::string(32, 'a') + std::string(32, 'f'));
    CHECK(hex(JoinKey("correct horse battery")) ==
          "9bc00fda349c059a8c3bb782dd767883416b086db26a4fb4a435b90c2c322cb1");
    CHECK(JoinKey().empty());
    CHECK(JoinKey("").empty());
    CHECK_FALSE(JoinKey("correct horse battery").empty());
}

TEST_CASE("what is said arrives, both ways, in any sizes") {
    Pair pair;
    for (const size_t size : {size_t{1}, size_t{16384}, size_t{100'000}, size_t{3}}) {
        const std::string text(size, 'm');
        pair.launcher.say(text);
        pair.agent.receive(take(pair.launcher));
        CHECK(pair.agent.take_received() == text);
        pair.agent.say(text + "!");
        pair.launcher.receive(take(pair.agent));
        CHECK(pair.launcher.take_received() == text + "!");
    }
}

TEST_CASE("nothing that is said can be read on the way") {
    Pair pair;
    const std::string canary = "HF_TOKEN=hf_canary_of_this_test";
    pair.launcher.say(canary);
    pair.agent.say(canary);
    CHECK(take(pair.launcher).find("canary") == std::string::npos);
    CHECK(take(pair.agent).find("canary") == std::string::npos);
    // Over a Unix socket it is found: this is the control of the search.
    JoinChannel plain(JoinSide::kAgent, JoinKey());
    plain.say(canary);
    CHECK(take(plain) == canary);
}

TEST_CASE("bytes that were changed, put in, dropped, replayed or turned round are not believed") {
    const auto what_agent_hears = [](const std::function<std::string(std::string)>& on_the_way) {
        Pair pair;
        pair.launcher.say("one");
        pair.launcher.say("two");
        const std::string bytes = on_the_way(take(pair.launcher));
        std::string reason = "nothing was noticed";
        try {
            pair.agent.receive(bytes);
        } catch (const Error& error) {
            reason = error.what();
        }
        return reason + ": " + pair.agent.take_received();
    };
    CHECK(what_agent_hears([](std::string bytes) { return bytes; }) ==
          "nothing was noticed: onetwo");
    const size_t length = [] {
        Pair pair;
        pair.launcher.say("one");
        pair.launcher.say("two");
        return take(pair.launcher).size();
    }();
    for (size_t at = 0; at < length; ++at) {
        INFO("byte " << at << " of " << length);
        const std::string heard = what_agent_hears([at](std::string bytes) {
            bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
            return bytes;
        });
        // A record before the changed one is the launcher's own. If a length is changed to a longer
        // one, the channel waits for more bytes.
        CHECK(heard.find("two") == std::string::npos);
        CHECK((at >= length / 2 || heard.find("one") == std::string::npos));
    }
    const std::string changed = "the data was changed in transit: ";
    CHECK(what_agent_hears([](const std::string& bytes) { return records_of(bytes).at(1); }) ==
          changed);
    CHECK(what_agent_hears([](const std::string& bytes) {
              return records_of(bytes).at(0) + records_of(bytes).at(0);
          }) == changed + "one");
    CHECK(what_agent_hears([](const std::string& bytes) {
              return records_of(bytes).at(1) + records_of(bytes).at(0);
          }) == changed);
    CHECK(what_agent_hears([](const std::string& bytes) {
              std::string made_up = records_of(bytes).at(0);
              made_up.back() = static_cast<char>(made_up.back() + 1);
              return made_up + bytes;
          }) == changed);
    Pair pair;
    pair.agent.say("said by the agent");
    CHECK_THROWS_WITH(pair.agent.receive(take(pair.agent)), "the data was changed in transit");
}

TEST_CASE("records of another connection of the same token are not believed") {
    Pair first;
    Pair second;
    first.launcher.say("for the first");
    CHECK_THROWS_WITH(second.agent.receive(take(first.launcher)),
                      "the data was changed in transit");
}

TEST_CASE("a launcher that shows a certificate instead of the token is refused") {
    // A key and a certificate that it signs itself, which any listener can make.
    EVP_PKEY* pair = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("launcher"), -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    REQUIRE(X509_sign(certificate, pair, nullptr) > 0);
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    REQUIRE(SSL_CTX_use_certificate(context, certificate) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey(context, pair) == 1);
    SSL* server = SSL_new(context);
    BIO* in = BIO_new(BIO_s_mem());
    BIO* out = BIO_new(BIO_s_mem());
    SSL_set_bio(server, in, out);
    SSL_set_accept_state(server);

    JoinChannel agent(JoinSide::kAgent, key());
    const std::string hello = take(agent);
    BIO_write(in, hello.data(), static_cast<int>(hello.size()));
    SSL_do_handshake(server);
    std::string flight(1U << 14, '\0');
    const int length = BIO_read(out, flight.data(), static_cast<int>(flight.size()));
    REQUIRE(length > 500);  // it has answered with its certificate
    flight.resize(static_cast<size_t>(length));
    CHECK_THROWS_WITH(agent.receive(flight), "the launcher there does not have this agent's token");
    CHECK_FALSE(agent.proven());
    SSL_free(server);
    SSL_CTX_free(context);
    X509_free(certificate);
    EVP_PKEY_free(pair);
}
