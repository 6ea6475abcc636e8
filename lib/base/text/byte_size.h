// Sizes in bytes as people write them. No threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// Reads "64K" as 65,536. The suffixes are K, M, G and T, also in lower case. Returns nothing if
// TEXT is not such a number, is negative, or exceeds an int64_t.
[[nodiscard]] std::optional<int64_t> parse_byte_size(std::string_view text);

}  // namespace dslaunch
