// Sizes in bytes as people write them. No threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// Reads "64K" as 65,536; K, M, G and T, small letters too. Returns nothing for text that is not
// such a number, is negative, or means more bytes than an int64_t holds.
[[nodiscard]] std::optional<int64_t> parse_byte_size(std::string_view text);

}  // namespace dslaunch
