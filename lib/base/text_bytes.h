// Views of bytes as text, and of text as bytes, without a copy.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace dslaunch {

// Return views of the argument's memory, which must outlive them.
[[nodiscard]] inline std::string_view text_in(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
[[nodiscard]] inline std::span<const std::byte> bytes_in(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace dslaunch
