// The reading of JSON as DeepSpeed's reader, Python's `hjson`, does: comments (`#`, `//`, `/* */`),
// no comma at a line's end or one too many, keys and text without quotes, '…', '''…''' over several
// lines, no braces around all. text -> [tree]. No threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::config {

class TreeBuilder;

// Gives TREE what TEXT holds; nothing when TEXT is comments alone. Throws StopReading with the
// place: a mistake, also one that HJSON takes as text (quoteless.h), or a limit.
void read_hjson(std::string_view text, TreeBuilder& tree);

// The number that four hexadecimal digits of TEXT at AT write.
[[nodiscard]] std::optional<uint32_t> hex4(std::string_view text, size_t at);

}  // namespace dslaunch::config
