// Plain structs are sent between processes as the encodings of their members, in the members' order
// (base/text/wire.h). A message is such a struct with a name, kWhat, for error messages:
//
//     struct Question {
//         static constexpr const char* kWhat = "a question";
//         int64_t number = 0;
//     };
//
// A member is a text, a flag, a number, an enum that has a function is_known(value), a duration, a
// pair, another such struct, or a vector of these. A struct that sends only some of its members
// returns them from wire_members(m). No state; any thread.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "base/error.h"
#include "base/text/wire.h"

namespace dslaunch {
namespace fields {

// A value that converts to any type, so that the members of a struct can be counted.
struct AnyMember {
    template <typename T>
    operator T() const;  // NOLINT(google-explicit-constructor): initializes a member
};

// Returns the number of members of Struct, which must be an aggregate without base classes.
template <typename Struct, typename... Members>
consteval size_t count() {
    if constexpr (requires { Struct{Members()..., AnyMember()}; }) {
        return count<Struct, Members..., AnyMember>();
    } else {
        return sizeof...(Members);
    }
}

// Returns references to the members of M that are sent, in their order.
template <typename Struct>
auto of(Struct& m) {
    using Plain = std::remove_const_t<Struct>;
    constexpr size_t kCount = count<Plain>();
    if constexpr (requires { Plain::wire_members(m); }) {
        return Plain::wire_members(m);
    } else if constexpr (requires { typename Plain::first_type; }) {
        return std::tie(m.first, m.second);
    } else if constexpr (kCount == 1) {
        auto& [a] = m;
        return std::tie(a);
    } else if constexpr (kCount == 2) {
        auto& [a, b] = m;
        return std::tie(a, b);
    } else if constexpr (kCount == 3) {
        auto& [a, b, c] = m;
        return std::tie(a, b, c);
    } else if constexpr (kCount == 4) {
        auto& [a, b, c, d] = m;
        return std::tie(a, b, c, d);
    } else if constexpr (kCount == 5) {
        auto& [a, b, c, d, e] = m;
        return std::tie(a, b, c, d, e);
    } else if constexpr (kCount == 6) {
        auto& [a, b, c, d, e, f] = m;
        return std::tie(a, b, c, d, e, f);
    } else if constexpr (kCount == 7) {
        auto& [a, b, c, d, e, f, g] = m;
        return std::tie(a, b, c, d, e, f, g);
    } else if constexpr (kCount == 8) {
        auto& [a, b, c, d, e, f, g, h] = m;
        return std::tie(a, b, c, d, e, f, g, h);
    } else if constexpr (kCount == 9) {
        auto& [a, b, c, d, e, f, g, h, i] = m;
        return std::tie(a, b, c, d, e, f, g, h, i);
    } else if constexpr (kCount == 10) {
        auto& [a, b, c, d, e, f, g, h, i, j] = m;
        return std::tie(a, b, c, d, e, f, g, h, i, j);
    } else if constexpr (kCount == 11) {
        auto& [a, b, c, d, e, f, g, h, i, j, k] = m;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k);
    } else if constexpr (kCount == 12) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l] = m;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
    } else {
        static_assert(kCount == 13, "of() supports structs with up to 13 members");
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, n] = m;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, n);
    }
}

inline constexpr uint32_t kAbsent = 0xFFFFFFFF;  // an optional number without a value

// Writes VALUE in the form that read() expects.
template <typename T>
void write(WireWriter& wire, const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
        wire.string(value);
    } else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
        wire.u8(static_cast<uint8_t>(value));
    } else if constexpr (std::is_same_v<T, uint32_t>) {
        wire.u32(value);
    } else if constexpr (std::is_integral_v<T>) {
        wire.i64(static_cast<int64_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
        wire.u64(std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_same_v<T, std::optional<uint32_t>>) {
        wire.u32(value.value_or(kAbsent));
    } else if constexpr (requires { value.count(); }) {
        wire.i64(value.count());
    } else if constexpr (requires { typename T::value_type; }) {
        wire.u32(static_cast<uint32_t>(value.size()));
        for (const auto& item : value) write(wire, item);
    } else {
        std::apply([&](const auto&... member) { (write(wire, member), ...); }, of(value));
    }
}

// Reads VALUE. Throws Error{kInternal} if bytes are missing, or if the value of an enum is unknown.
template <typename T>
void read(WireReader& wire, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
        value = wire.string();
    } else if constexpr (std::is_same_v<T, bool>) {
        value = wire.u8() != 0;
    } else if constexpr (std::is_enum_v<T>) {
        const uint8_t number = wire.u8();
        if (!is_known(static_cast<T>(number)))
            fail(ExitCode::kInternal, "a message of the protocol contains the unknown value {}",
                 number);
        value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, uint32_t>) {
        value = wire.u32();
    } else if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(wire.i64());
    } else if constexpr (std::is_same_v<T, double>) {
        value = std::bit_cast<double>(wire.u64());
    } else if constexpr (std::is_same_v<T, std::optional<uint32_t>>) {
        const uint32_t number = wire.u32();
        if (number != kAbsent) value = number;
    } else if constexpr (requires { value.count(); }) {
        value = T(wire.i64());
    } else if constexpr (requires { typename T::value_type; }) {
        value.clear();
        // Items are read one by one. If the count in a damaged message is too large, reading
        // therefore ends with an error before memory runs out.
        for (uint32_t left = wire.u32(); left > 0; --left) read(wire, value.emplace_back());
    } else {
        std::apply([&](auto&... member) { (read(wire, member), ...); }, of(value));
    }
}

}  // namespace fields

template <typename M>
concept Message = requires {
    { M::kWhat } -> std::convertible_to<std::string_view>;
};

// A message that begins with the version of its format. If a message has another version, only the
// members of wire_beginning(m), which include protocol_version, are read.
template <typename M>
concept VersionedMessage = Message<M> && requires(M m) {
    {m.protocol_version == M::kVersion};
    M::wire_beginning(m);
};

// Returns the bytes of MESSAGE, without a length or a type: the frame around them has both.
template <Message M>
[[nodiscard]] std::string encode(const M& message) {
    WireWriter wire;
    fields::write(wire, message);
    return wire.bytes();
}

// Returns the message in BYTES. Throws Error{kInternal}, whose text names M::kWhat, if bytes are
// missing or left over. If M has a function check(), calls it and passes on what it throws.
template <Message M>
[[nodiscard]] M decode(std::string_view bytes) {
    M message;
    if constexpr (VersionedMessage<M>) {
        WireReader beginning(bytes, M::kWhat);
        std::apply([&](auto&... member) { (fields::read(beginning, member), ...); },
                   M::wire_beginning(message));
        if (message.protocol_version != M::kVersion) return message;
    }
    WireReader wire(bytes, M::kWhat);
    fields::read(wire, message);
    if (!wire.done())
        fail(ExitCode::kInternal, "{}: the message has more bytes than expected", M::kWhat);
    if constexpr (requires { message.check(); }) message.check();
    return message;
}

}  // namespace dslaunch
