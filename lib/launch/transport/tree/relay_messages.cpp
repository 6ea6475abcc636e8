#include "launch/transport/tree/relay_messages.h"

#include "base/error.h"
#include "launch/protocol/field_visitor.h"
#include "launch/protocol/length_prefix.h"

namespace dslaunch::launch {

// A relay may use the kinds up to this one.
inline bool is_known(TransportKind kind) {
    return kind <= TransportKind::kOpenSsh;
}

template <typename Visitor, Is<HostAddress> M>
void fields(Visitor& visit, M& m) {
    visit(m.name), visit(m.user), visit(m.port), visit(m.address);
}
template <typename Visitor, Is<RelayHello> M>
void fields(Visitor& visit, M& m) {
    visit(m.protocol_version), visit(m.version);
}
template <typename Visitor, Is<RelayHosts> M>
void fields(Visitor& visit, M& m) {
    visit(m.transport), visit(m.ssh_config_path), visit(m.fanout), visit(m.hosts);
}
template <typename Visitor, Is<RelayPlace> M>
void fields(Visitor& visit, M& m) {
    visit(m.place);
}
template <typename Visitor, Is<RelayBytes> M>
void fields(Visitor& visit, M& m) {
    visit(m.place), visit(m.bytes);
}
template <typename Visitor, Is<RelayCredit> M>
void fields(Visitor& visit, M& m) {
    visit(m.place), visit(m.bytes_count);
}
template <typename Visitor, Is<RelayEnded> M>
void fields(Visitor& visit, M& m) {
    visit(m.place), visit(m.cause), visit(m.exit_status);
}

namespace {

constexpr int kPortMax = 65'535;

bool is_relay_kind(uint16_t kind) {
    return (kind >= static_cast<uint16_t>(RelayFrameKind::kHosts) &&
            kind <= static_cast<uint16_t>(RelayFrameKind::kPing)) ||
           (kind >= static_cast<uint16_t>(RelayFrameKind::kHello) &&
            kind <= static_cast<uint16_t>(RelayFrameKind::kEnded));
}

}  // namespace

std::string relay_frame(RelayFrameKind kind, std::string_view payload) {
    return add_length_prefix(static_cast<uint16_t>(kind), payload);
}

#define DSL_RELAY_MESSAGE(Type, what)                 \
    std::string encode(const Type& message) {         \
        return write_fields(message);                 \
    }                                                 \
    template <>                                       \
    Type decode_relay<Type>(std::string_view bytes) { \
        return read_fields<Type>(bytes, what);        \
    }

DSL_RELAY_MESSAGE(RelayPlace, "a relay's place")
DSL_RELAY_MESSAGE(RelayBytes, "relayed bytes")
DSL_RELAY_MESSAGE(RelayCredit, "a relay's credit")
DSL_RELAY_MESSAGE(RelayEnded, "the end of a relayed agent")

std::string encode(const RelayHello& message) {
    return write_fields(message);
}
std::string encode(const RelayHosts& message) {
    return write_fields(message);
}

// One of another version may have more fields.
template <>
RelayHello decode_relay<RelayHello>(std::string_view bytes) {
    constexpr const char* kWhat = "a relay's hello";
    RelayHello hello;
    hello.protocol_version = WireReader(bytes, kWhat).u32();
    if (hello.protocol_version != kRelayProtocolVersion) return hello;
    return read_fields<RelayHello>(bytes, kWhat);
}

template <>
RelayHosts decode_relay<RelayHosts>(std::string_view bytes) {
    RelayHosts message = read_fields<RelayHosts>(bytes, "a relay's hosts");
    for (const HostAddress& host : message.hosts) {
        if (host.port >= 0 && host.port <= kPortMax) continue;
        fail(ExitCode::kInternal, "a relay was told of port {}", host.port);
    }
    if (message.hosts.empty() || message.fanout < 2) {
        fail(ExitCode::kInternal, "a relay of {} hosts with a fan-out of {}", message.hosts.size(),
             message.fanout);
    }
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
    if (!is_relay_kind(taken->kind)) {
        fail(ExitCode::kInternal, "a relay's frame of the unknown kind {}", taken->kind);
    }
    return RelayFrame{static_cast<RelayFrameKind>(taken->kind), std::move(taken->payload)};
}

}  // namespace dslaunch::launch
