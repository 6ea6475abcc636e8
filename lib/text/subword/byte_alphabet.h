// The characters that byte-level tokenizers write for bytes. A byte that is a printable character
// of Latin-1 is written as this character, every other byte as a character from U+0100 on. Threads:
// any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::text {

// Returns the character that is written for BYTE.
[[nodiscard]] char32_t character_of_byte(unsigned char byte);
// Appends the characters that stand for the bytes of TEXT.
void append_characters(std::string& out, std::string_view text);
// Returns the bytes that TEXT stands for, or nothing if a character is not one of the 256.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace dslaunch::text
