// Sizes in bytes as people write them. No threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// "64K" is 65,536; K, M, G and T, small letters too. Nothing for what is no such number, is
// negative, or has more bytes than an int64_t holds.
[[nodiscard]] std::optional<int64_t> parse_byte_size(std::string_view text);

}  // namespace dslaunch
