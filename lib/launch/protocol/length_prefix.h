// The outer form that agent frames and worker control frames share: payload length u32, kind u16,
// payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

struct PrefixedPayload {
    uint16_t kind = 0;
    std::string payload;
};

[[nodiscard]] std::string add_length_prefix(uint16_t kind, std::string_view payload);

// The next whole payload of BUFFER from USED on; USED moves behind it, and used bytes are dropped
// now and then. Throws Error{kInternal} as soon as the length field is over PAYLOAD_BYTES_MAX.
[[nodiscard]] std::optional<PrefixedPayload> take_length_prefixed(std::string& buffer, size_t& used,
                                                                  uint32_t payload_bytes_max);

}  // namespace dslaunch::launch
