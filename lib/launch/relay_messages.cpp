#include "launch/relay_messages.h"

#include <algorithm>

#include "base/error.h"
#include "base/wire.h"
#include "launch/length_prefix.h"

namespace dslaunch {
namespace {

constexpr int kPortMax = 65'535;

bool is_known(uint16_t kind) {
    return (kind >= static_cast<uint16_t>(RelayFrameKind::kHosts) &&
            kind <= static_cast<uint16_t>(RelayFrameKind::kPing)) ||
           (kind >= static_cast<uint16_t>(RelayFrameKind::kHello) &&
            kind <= static_cast<uint16_t>(RelayFrameKind::kEnded));
}

void accept_no_rest(const WireReader& reader, std::string_view what) {
    if (!reader.done()) fail(ExitCode::kInternal, "{}: bytes are left over", what);
}

HostAddress read_host(WireReader& reader) {
    HostAddress host;
    host.name = reader.string();
    host.user = reader.string();
    const uint32_t port = reader.u32();
    if (port > kPortMax) fail(ExitCode::kInternal, "a relay was told of port {}", port);
    host.port = static_cast<int>(port);
    host.address = reader.string();
    return host;
}

}  // namespace

std::string relay_frame(RelayFrameKind kind, std::string_view payload) {
    return add_length_prefix(static_cast<uint16_t>(kind), payload);
}

std::string encode(const RelayHello& message) {
    return WireWriter().u32(message.protocol_version).string(message.version).bytes();
}

std::string encode(const RelayHosts& message) {
    WireWriter writer;
    writer.u8(static_cast<uint8_t>(message.transport)).string(message.ssh_config_path);
    writer.u32(message.fanout).u32(static_cast<uint32_t>(message.hosts.size()));
    for (const HostAddress& host : message.hosts) {
        writer.string(host.name).string(host.user);
        writer.u32(static_cast<uint32_t>(host.port)).string(host.address);
    }
    return writer.bytes();
}

std::string encode(const RelayPlace& message) {
    return WireWriter().u32(message.place).bytes();
}

std::string encode(const RelayBytes& message) {
    return WireWriter().u32(message.place).string(message.bytes).bytes();
}

std::string encode(const RelayCredit& message) {
    return WireWriter().u32(message.place).u32(message.bytes_count).bytes();
}

std::string encode(const RelayEnded& message) {
    WireWriter writer;
    writer.u32(message.place).string(message.cause);
    return writer.u32(static_cast<uint32_t>(message.exit_status)).bytes();
}

template <>
RelayHello decode_relay<RelayHello>(std::string_view bytes) {
    WireReader reader(bytes, "a relay's hello");
    RelayHello message;
    message.protocol_version = reader.u32();
    if (message.protocol_version != kRelayProtocolVersion) return message;
    message.version = reader.string();
    accept_no_rest(reader, "a relay's hello");
    return message;
}

template <>
RelayHosts decode_relay<RelayHosts>(std::string_view bytes) {
    WireReader reader(bytes, "a relay's hosts");
    RelayHosts message;
    const uint8_t transport = reader.u8();
    if (transport > static_cast<uint8_t>(TransportKind::kOpenSsh)) {
        fail(ExitCode::kInternal, "a relay was told of the unknown transport {}", transport);
    }
    message.transport = static_cast<TransportKind>(transport);
    message.ssh_config_path = reader.string();
    message.fanout = reader.u32();
    const uint32_t hosts_count = reader.u32();
    // One by one: a count that lies runs out of bytes before it runs out of memory.
    for (uint32_t i = 0; i < hosts_count; ++i) message.hosts.push_back(read_host(reader));
    accept_no_rest(reader, "a relay's hosts");
    if (message.hosts.empty() || message.fanout < 2) {
        fail(ExitCode::kInternal, "a relay of {} host(s) with a fan-out of {}", hosts_count,
             message.fanout);
    }
    return message;
}

template <>
RelayPlace decode_relay<RelayPlace>(std::string_view bytes) {
    WireReader reader(bytes, "a relay's place");
    const RelayPlace message{reader.u32()};
    accept_no_rest(reader, "a relay's place");
    return message;
}

template <>
RelayBytes decode_relay<RelayBytes>(std::string_view bytes) {
    WireReader reader(bytes, "relayed bytes");
    RelayBytes message;
    message.place = reader.u32();
    message.bytes = reader.string();
    accept_no_rest(reader, "relayed bytes");
    return message;
}

template <>
RelayCredit decode_relay<RelayCredit>(std::string_view bytes) {
    WireReader reader(bytes, "a relay's credit");
    RelayCredit message;
    message.place = reader.u32();
    message.bytes_count = reader.u32();
    accept_no_rest(reader, "a relay's credit");
    return message;
}

template <>
RelayEnded decode_relay<RelayEnded>(std::string_view bytes) {
    WireReader reader(bytes, "the end of a relayed agent");
    RelayEnded message;
    message.place = reader.u32();
    message.cause = reader.string();
    message.exit_status = static_cast<int32_t>(reader.u32());
    accept_no_rest(reader, "the end of a relayed agent");
    return message;
}

void RelayDecoder::append(std::string_view bytes) {
    buffer_.append(bytes);
    if (greeted_) return;
    const size_t at = buffer_.find(kRelayGreeting);
    if (at != std::string::npos) {
        buffer_.erase(0, at + kRelayGreeting.size());
        greeted_ = true;
    } else if (buffer_.size() > kGreetingNoiseBytesMax) {
        fail(ExitCode::kInternal, "the host printed over {} bytes and no relay greeted",
             kGreetingNoiseBytesMax);
    }
}

std::optional<RelayFrame> RelayDecoder::next() {
    if (!greeted_) return std::nullopt;
    auto taken = take_length_prefixed(buffer_, used_, kFramePayloadBytesMax);
    if (!taken) return std::nullopt;
    if (!is_known(taken->kind)) {
        fail(ExitCode::kInternal, "a relay's frame of the unknown kind {}", taken->kind);
    }
    return RelayFrame{static_cast<RelayFrameKind>(taken->kind), std::move(taken->payload)};
}

}  // namespace dslaunch
