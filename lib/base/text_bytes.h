// Views of bytes as text, and of text as bytes, without a copy. Also finds an incomplete character
// at the end of bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/text.h"

namespace dslaunch {

// Return views of the argument's memory, which must outlive them.
[[nodiscard]] inline std::string_view text_in(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
[[nodiscard]] inline std::span<const std::byte> bytes_in(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

// Returns the length of TEXT without the incomplete character at its end, if there is one. A
// character is incomplete if further bytes could make it valid UTF-8.
[[nodiscard]] inline size_t whole_characters(std::string_view text) {
    for (size_t i = text.size() < 3 ? 0 : text.size() - 3; i < text.size(); ++i) {
        const auto lead = static_cast<unsigned char>(text[i]);
        if (lead < 0xC2 || lead > 0xF4) continue;
        const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        const size_t present = text.size() - i;
        if (present >= length) continue;
        // A lead byte alone can always become a character. A second byte may be out of its range.
        const std::string whole = std::string(text.substr(i)).append(length - present, '\x80');
        if (present == 1 || utf8_length(whole, 0) == length) return i;
    }
    return text.size();
}

}  // namespace dslaunch
