// Texts as Python sees them: rows of Unicode's code points, stored as UTF-8. REQUIRES everywhere:
// the text is valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

// Bytes of the code point whose first byte is LEAD.
[[nodiscard]] constexpr size_t point_bytes(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    if (byte < 0xC0) return 1;
    if (byte < 0xE0) return 2;
    return byte < 0xF0 ? 3 : 4;
}

[[nodiscard]] inline uint32_t point_at(std::string_view text, size_t i) {
    const auto byte = [&](size_t offset) {
        return uint32_t(static_cast<unsigned char>(text[i + offset]));
    };
    switch (point_bytes(text[i])) {
        case 1:
            return byte(0);
        case 2:
            return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
        case 3:
            return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
        default:
            return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                   (byte(3) & 0x3F);
    }
}

// Where the code point that ends before byte END begins. REQUIRES: END > 0.
[[nodiscard]] inline size_t point_before(std::string_view text, size_t end) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    return begin;
}

[[nodiscard]] inline int64_t count_points(std::string_view text) {
    int64_t count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return count;
}

// Byte offset of the code point number POINTS, the text's end if there are fewer.
[[nodiscard]] inline size_t point_offset(std::string_view text, int64_t points) {
    size_t at = 0;
    for (; points > 0 && at < text.size(); --points) at += point_bytes(text[at]);
    return at < text.size() ? at : text.size();
}

inline void append_point(std::string& text, uint32_t point) {
    const auto follow = [&](int shift) { text += char(0x80 | ((point >> shift) & 0x3F)); };
    if (point < 0x80) {
        text += char(point);
    } else if (point < 0x800) {
        text += char(0xC0 | (point >> 6));
        follow(0);
    } else if (point < 0x10000) {
        text += char(0xE0 | (point >> 12));
        follow(6);
        follow(0);
    } else {
        text += char(0xF0 | (point >> 18));
        follow(12);
        follow(6);
        follow(0);
    }
}

}  // namespace dslaunch::text::jinja
