#include "text/subword/byte_alphabet.h"

#include <array>

#include "base/text.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr size_t kCharactersEnd = 0x144;  // 256 and the 68 bytes that do not stand for themselves

struct Alphabet {
    std::array<char32_t, 256> characters{};
    std::array<int, kCharactersEnd> bytes{};
};

constexpr Alphabet make_alphabet() {
    Alphabet alphabet;
    alphabet.bytes.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const bool is_itself =
            (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        const char32_t character = is_itself ? byte : next++;
        alphabet.characters[byte] = character;
        alphabet.bytes[character] = static_cast<int>(byte);
    }
    return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t character_of_byte(unsigned char byte) {
    return kAlphabet.characters[byte];
}

void append_characters(std::string& out, std::string_view text) {
    for (const char c : text) append_utf8(out, character_of_byte(static_cast<unsigned char>(c)));
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
    std::string bytes;
    for (size_t i = 0; i < text.size();) {
        const char32_t point = next_point(text, i);
        if (point >= kCharactersEnd || kAlphabet.bytes[point] < 0) return std::nullopt;
        bytes += static_cast<char>(kAlphabet.bytes[point]);
    }
    return bytes;
}

}  // namespace dslaunch::text
