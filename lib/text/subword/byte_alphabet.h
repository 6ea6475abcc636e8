// The characters that byte-level tokenizers write bytes as: printable Latin-1 stands for itself,
// all others for U+0100 and up. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::text {

[[nodiscard]] char32_t character_of_byte(unsigned char byte);
// Appends the characters of the bytes of TEXT.
void append_characters(std::string& out, std::string_view text);
// Returns the bytes for which TEXT stands; nothing if a character is not one of the 256.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace dslaunch::text
