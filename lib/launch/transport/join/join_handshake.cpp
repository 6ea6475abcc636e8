#include "launch/transport/join/join_handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/wire.h"

namespace dslaunch::launch {
namespace {

// The part of kJoinOpening that every version shares.
constexpr std::string_view kFamily = "dslaunch-join ";
constexpr uint32_t kNoNode = 0xFFFFFFFF;
constexpr size_t kLengthBytes = 4;
constexpr size_t kVerdictHeadBytes = 1 + kLengthBytes;
constexpr uint8_t kJoined = 0;
constexpr uint8_t kRefused = 1;

std::string verdict(uint8_t kind, std::string_view body) {
    WireWriter writer;
    writer.u8(kind).string(body);
    return writer.bytes();
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// True: TEXT could still become an opening of some version.
bool may_be_opening(std::string_view text) {
    const size_t length = std::min(text.size(), kFamily.size());
    return text.substr(0, length) == kFamily.substr(0, length);
}

}  // namespace

std::string encode(const JoinIdentity& identity) {
    WireWriter writer;
    writer.u32(identity.node.value_or(kNoNode))
        .string(identity.node_name)
        .string(identity.host_name);
    return writer.bytes();
}

JoinIdentity decode_join_identity(std::string_view bytes) {
    WireReader reader(bytes, "an agent's identity");
    JoinIdentity identity;
    const uint32_t node = reader.u32();
    if (node != kNoNode) identity.node = node;
    identity.node_name = reader.string();
    identity.host_name = reader.string();
    if (!reader.done()) fail(ExitCode::kInternal, "an agent's identity has bytes left over");
    return identity;
}

std::string make_join_nonce() {
    std::array<unsigned char, kJoinNonceBytes> bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
        fail(ExitCode::kSetup, "this machine gives no random bytes");
    }
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string join_proof(JoinSide side, const std::string& token, std::string_view agent_nonce,
                       std::string_view launcher_nonce, std::string_view identity) {
    std::string text = side == JoinSide::kAgent ? "agent" : "launcher";
    text += '\0';
    text.append(agent_nonce).append(launcher_nonce).append(identity);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    const auto* made = HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            digest.data(), &length);
    DSL_CHECK(made != nullptr && length == kJoinProofBytes, "HMAC-SHA256 failed");
    return {reinterpret_cast<const char*>(digest.data()), length};
}

LauncherHandshake::LauncherHandshake(std::string token, std::string nonce)
    : token_(std::move(token)), nonce_(std::move(nonce)) {
    DSL_CHECK(nonce_.size() == kJoinNonceBytes, "a nonce of {} bytes", nonce_.size());
}

size_t LauncherHandshake::wanted() const {
    switch (stage_) {
        case Stage::kOpening:
            return kJoinOpening.size() + kJoinNonceBytes - buffer_.size();
        case Stage::kIdentityLength:
            return kLengthBytes - buffer_.size();
        case Stage::kIdentity:
            return identity_length_ + kJoinProofBytes - buffer_.size();
        case Stage::kOver:
            break;
    }
    return 0;
}

LauncherHandshake::State LauncherHandshake::feed(std::string_view bytes) {
    DSL_CHECK(state_ == State::kRunning && bytes.size() <= wanted(), "bytes nobody wanted");
    buffer_.append(bytes);
    if (stage_ == Stage::kOpening && !may_be_opening(buffer_)) {
        return stranger("it speaks something else");
    }
    if (wanted() > 0) return state_;
    switch (stage_) {
        case Stage::kOpening:
            take_opening();
            break;
        case Stage::kIdentityLength: {
            const std::string length = std::exchange(buffer_, {});
            identity_length_ = WireReader(length, "the length of an identity").u32();
            stage_ = Stage::kIdentity;
            if (identity_length_ > kJoinIdentityBytesMax) return stranger("too long an identity");
            break;
        }
        case Stage::kIdentity:
            take_identity();
            break;
        case Stage::kOver:
            break;
    }
    return state_;
}

void LauncherHandshake::take_opening() {
    const std::string_view opening = std::string_view(buffer_).substr(0, kJoinOpening.size());
    if (opening != kJoinOpening) {
        return refuse(
            fmt::format("this launcher speaks join protocol 1 ({}), the agent another; "
                        "give both the same dslaunch",
                        DSL_VERSION));
    }
    agent_nonce_ = buffer_.substr(kJoinOpening.size());
    buffer_.clear();
    output_ = std::string(kJoinOpening) + nonce_;
    stage_ = Stage::kIdentityLength;
}

void LauncherHandshake::take_identity() {
    identity_bytes_ = buffer_.substr(0, identity_length_);
    const std::string proof = buffer_.substr(identity_length_);
    const std::string expected =
        join_proof(JoinSide::kAgent, token_, agent_nonce_, nonce_, identity_bytes_);
    if (!equal_in_constant_time(proof, expected)) {
        return refuse("its token is not this job's");
    }
    try {
        identity_ = decode_join_identity(identity_bytes_);
    } catch (const Error& error) {
        return refuse(error.what());
    }
    stage_ = Stage::kOver;
    state_ = State::kProven;
}

std::string LauncherHandshake::take_output() {
    return std::exchange(output_, {});
}

void LauncherHandshake::accept() {
    DSL_CHECK(state_ == State::kProven, "only a proven agent is accepted");
    output_ += verdict(
        kJoined, join_proof(JoinSide::kLauncher, token_, agent_nonce_, nonce_, identity_bytes_));
}

void LauncherHandshake::refuse(const std::string& reason) {
    stage_ = Stage::kOver;
    state_ = State::kRefused;
    reason_ = reason;
    output_ += verdict(kRefused, reason.substr(0, kJoinRefusalBytesMax));
}

LauncherHandshake::State LauncherHandshake::stranger(const std::string& reason) {
    stage_ = Stage::kOver;
    reason_ = reason;
    output_.clear();
    return state_ = State::kStranger;
}

AgentHandshake::AgentHandshake(std::string token, std::string nonce, const JoinIdentity& identity)
    : token_(std::move(token)), nonce_(std::move(nonce)), identity_bytes_(encode(identity)) {
    DSL_CHECK(nonce_.size() == kJoinNonceBytes, "a nonce of {} bytes", nonce_.size());
    DSL_CHECK(identity_bytes_.size() <= kJoinIdentityBytesMax, "an identity of {} bytes",
              identity_bytes_.size());
    output_ = std::string(kJoinOpening) + nonce_;
}

size_t AgentHandshake::wanted() const {
    switch (stage_) {
        case Stage::kOpening: {
            // A refusal may come instead: it begins with another byte and is read as such.
            const bool refusal = !buffer_.empty() && buffer_.front() == char{kRefused};
            if (buffer_.empty()) return 1;
            return (refusal ? kVerdictHeadBytes : kJoinOpening.size() + kJoinNonceBytes) -
                   buffer_.size();
        }
        case Stage::kVerdictHead:
            return kVerdictHeadBytes - buffer_.size();
        case Stage::kVerdict:
            return verdict_length_ - buffer_.size();
        case Stage::kOver:
            break;
    }
    return 0;
}

AgentHandshake::State AgentHandshake::feed(std::string_view bytes) {
    DSL_CHECK(state_ == State::kRunning && bytes.size() <= wanted(), "bytes nobody wanted");
    buffer_.append(bytes);
    if (stage_ == Stage::kOpening && buffer_.front() == char{kRefused}) {
        stage_ = Stage::kVerdictHead;
    }
    if (stage_ == Stage::kOpening && !may_be_opening(buffer_)) {
        return fail_with(State::kNotLauncher, "what answers there is no dslaunch that waits");
    }
    if (wanted() > 0) return state_;
    switch (stage_) {
        case Stage::kOpening:
            take_opening();
            break;
        case Stage::kVerdictHead: {
            WireReader reader(buffer_, "a verdict");
            refused_ = reader.u8() != kJoined;
            verdict_length_ = reader.u32();
            buffer_.clear();
            stage_ = Stage::kVerdict;
            const bool fits = refused_ ? verdict_length_ <= kJoinRefusalBytesMax
                                       : verdict_length_ == kJoinProofBytes;
            if (!fits) return fail_with(State::kNotLauncher, "what answers there talks nonsense");
            if (verdict_length_ == 0) take_verdict();
            break;
        }
        case Stage::kVerdict:
            take_verdict();
            break;
        case Stage::kOver:
            break;
    }
    return state_;
}

void AgentHandshake::take_opening() {
    if (std::string_view(buffer_).substr(0, kJoinOpening.size()) != kJoinOpening) {
        fail_with(State::kNotLauncher,
                  "the launcher there speaks another version; give both the "
                  "same dslaunch");
        return;
    }
    launcher_nonce_ = buffer_.substr(kJoinOpening.size());
    buffer_.clear();
    WireWriter writer;
    writer.string(identity_bytes_);
    output_ += writer.bytes() +
               join_proof(JoinSide::kAgent, token_, nonce_, launcher_nonce_, identity_bytes_);
    stage_ = Stage::kVerdictHead;
}

void AgentHandshake::take_verdict() {
    if (refused_) {
        fail_with(State::kRefused, printable(buffer_));
        return;
    }
    const std::string expected =
        join_proof(JoinSide::kLauncher, token_, nonce_, launcher_nonce_, identity_bytes_);
    if (!equal_in_constant_time(buffer_, expected)) {
        fail_with(State::kNotLauncher, "the launcher there does not hold this agent's token");
        return;
    }
    stage_ = Stage::kOver;
    state_ = State::kJoined;
}

std::string AgentHandshake::take_output() {
    return std::exchange(output_, {});
}

AgentHandshake::State AgentHandshake::fail_with(State state, std::string reason) {
    stage_ = Stage::kOver;
    reason_ = std::move(reason);
    return state_ = state;
}

}  // namespace dslaunch::launch
