#include "launch/protocol/length_prefix.h"

#include "base/error.h"
#include "base/text/wire.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kHeaderBytes = 6;

uint32_t little_endian(std::string_view bytes) {
    uint32_t value = 0;
    for (size_t i = bytes.size(); i-- > 0;) {
        value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return value;
}

}  // namespace

std::string add_length_prefix(uint16_t kind, std::string_view payload) {
    std::string bytes;
    bytes.reserve(kHeaderBytes + payload.size());
    const auto length = static_cast<uint32_t>(payload.size());
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(length >> shift));
    for (int shift = 0; shift < 16; shift += 8) bytes.push_back(static_cast<char>(kind >> shift));
    bytes.append(payload);
    return bytes;
}

std::optional<PrefixedPayload> take_length_prefixed(std::string& buffer, size_t& used,
                                                    uint32_t payload_bytes_max) {
    const std::string_view rest = std::string_view(buffer).substr(used);
    const auto forget_used = [&] {
        buffer.erase(0, used);
        used = 0;
    };
    if (rest.size() < kHeaderBytes) {
        forget_used();
        return std::nullopt;
    }
    const uint32_t length = little_endian(rest.substr(0, 4));
    if (length > payload_bytes_max) {
        fail(ExitCode::kInternal, "a frame of {} bytes, over the limit of {}", length,
             payload_bytes_max);
    }
    if (rest.size() < kHeaderBytes + length) {
        forget_used();
        return std::nullopt;
    }
    PrefixedPayload taken{static_cast<uint16_t>(little_endian(rest.substr(4, 2))),
                          std::string(rest.substr(kHeaderBytes, length))};
    used += kHeaderBytes + length;
    return taken;
}

}  // namespace dslaunch::launch
