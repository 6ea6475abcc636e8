#include "launch/transport/join/join_handshake.h"

#include <fmt/format.h>

#include <algorithm>

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
constexpr char kJoined = 0;
constexpr char kRefused = 1;

std::string refusal(const std::string& reason) {
    WireWriter writer;
    writer.u8(kRefused).string(std::string_view(reason).substr(0, kJoinRefusalBytesMax));
    return writer.bytes();
}

// The string of at most BYTES_MAX that begins at AT; nothing: it is not whole yet.
std::optional<std::string_view> string_at(std::string_view bytes, size_t at, size_t bytes_max) {
    if (bytes.size() < at + kLengthBytes) return std::nullopt;
    const size_t length = WireReader(bytes.substr(at, kLengthBytes), "a length").u32();
    if (length > bytes_max) fail(ExitCode::kInternal, "a text of {} bytes", length);
    if (bytes.size() < at + kLengthBytes + length) return std::nullopt;
    return bytes.substr(at + kLengthBytes, length);
}

// True: TEXT could still become an opening of some version.
bool may_be_opening(std::string_view text) {
    const size_t length = std::min(text.size(), kFamily.size());
    return text.substr(0, length) == kFamily.substr(0, length);
}

// Moves bytes from REST to OPENING until it is whole.
void fill_opening(std::string& opening, std::string_view& rest) {
    const size_t length = std::min(rest.size(), kJoinOpening.size() - opening.size());
    opening.append(rest.substr(0, length));
    rest.remove_prefix(length);
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

LauncherHandshake::LauncherHandshake(const JoinKey& key) : channel_(JoinSide::kLauncher, key) {}

LauncherHandshake::State LauncherHandshake::feed(std::string_view bytes) {
    DSL_CHECK(state_ == State::kRunning, "bytes nobody wanted");
    bytes_ += bytes.size();
    if (bytes_ > kJoinBytesMax) return end(State::kStranger, "it does not say who it is");
    if (!opened_) {
        fill_opening(opening_, bytes);
        if (!may_be_opening(opening_)) return end(State::kStranger, "it speaks something else");
        if (opening_.size() < kJoinOpening.size()) return state_;
        take_opening();
        if (!opened_) return state_;
    }
    try {
        channel_.receive(bytes);
        said_ += channel_.take_received();
        if (channel_.proven()) take_identity();
    } catch (const Error& error) {
        end(State::kRefused, error.what());
    }
    return state_;
}

void LauncherHandshake::take_opening() {
    if (opening_ == kJoinOpening) {
        opened_ = true;
        output_ = kJoinOpening;
        return;
    }
    const std::string reason = fmt::format(
        "this launcher speaks join protocol 1 ({}), the agent another; give both the same dslaunch",
        DSL_VERSION);
    output_ = refusal(reason);
    end(State::kRefused, reason);
}

void LauncherHandshake::take_identity() {
    const auto bytes = string_at(said_, 0, kJoinIdentityBytesMax);
    if (!bytes) return;
    identity_ = decode_join_identity(*bytes);
    channel_.put_back(std::string_view(said_).substr(kLengthBytes + bytes->size()));
    state_ = State::kProven;
}

std::string LauncherHandshake::take_output() {
    output_ += std::exchange(channel_.to_connection(), {});
    return std::exchange(output_, {});
}

void LauncherHandshake::accept() {
    DSL_CHECK(state_ == State::kProven, "only a proven agent is accepted");
    channel_.say(std::string_view(&kJoined, 1));
}

void LauncherHandshake::refuse(const std::string& reason) {
    DSL_CHECK(state_ == State::kProven, "only a proven agent is refused through the channel");
    channel_.say(refusal(reason));
    end(State::kRefused, reason);
}

JoinChannel LauncherHandshake::take_channel() {
    return std::move(channel_);
}

LauncherHandshake::State LauncherHandshake::end(State state, const std::string& reason) {
    reason_ = reason;
    if (state == State::kStranger) output_.clear();
    return state_ = state;
}

AgentHandshake::AgentHandshake(const JoinKey& key, const JoinIdentity& identity)
    : channel_(JoinSide::kAgent, key), identity_bytes_(encode(identity)), output_(kJoinOpening) {
    DSL_CHECK(identity_bytes_.size() <= kJoinIdentityBytesMax, "an identity of {} bytes",
              identity_bytes_.size());
}

AgentHandshake::State AgentHandshake::feed(std::string_view bytes) {
    DSL_CHECK(state_ == State::kRunning, "bytes nobody wanted");
    bytes_ += bytes.size();
    if (!opened_) {
        if (bytes_ > kJoinBytesMax) return end(State::kNotLauncher, "what answers talks nonsense");
        fill_opening(opening_, bytes);
        if (take_opening() != State::kRunning || !opened_) return state_;
    }
    try {
        channel_.receive(bytes);
        said_ += channel_.take_received();
        if (channel_.proven()) return take_verdict();
    } catch (const Error& error) {
        return end(State::kNotLauncher, error.what());
    }
    return state_;
}

// A refusal in clear may come instead of the opening: it begins with another byte.
AgentHandshake::State AgentHandshake::take_opening() {
    if (opening_.empty()) return state_;
    if (opening_.front() == kRefused) {
        return end(State::kNotLauncher,
                   "the launcher there speaks another version; give both the "
                   "same dslaunch");
    }
    if (!may_be_opening(opening_)) {
        return end(State::kNotLauncher, "what answers there is no dslaunch that waits");
    }
    if (opening_.size() < kJoinOpening.size()) return state_;
    if (opening_ != kJoinOpening) {
        return end(State::kNotLauncher,
                   "the launcher there speaks another version; give both the same dslaunch");
    }
    opened_ = true;
    return state_;
}

AgentHandshake::State AgentHandshake::take_verdict() {
    if (!std::exchange(introduced_, true)) {
        WireWriter writer;
        writer.string(identity_bytes_);
        channel_.say(writer.bytes());
    }
    if (said_.empty()) return state_;
    if (said_.front() == kJoined) {
        channel_.put_back(std::string_view(said_).substr(1));
        return state_ = State::kJoined;
    }
    const auto reason = string_at(said_, 1, kJoinRefusalBytesMax);
    if (!reason) return state_;
    return end(State::kRefused, printable(*reason));
}

std::string AgentHandshake::take_output() {
    output_ += std::exchange(channel_.to_connection(), {});
    return std::exchange(output_, {});
}

JoinChannel AgentHandshake::take_channel() {
    return std::move(channel_);
}

AgentHandshake::State AgentHandshake::end(State state, std::string reason) {
    reason_ = std::move(reason);
    return state_ = state;
}

}  // namespace dslaunch::launch
