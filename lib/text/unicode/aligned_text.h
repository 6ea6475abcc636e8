// Text that knows for each byte its place in an original text, through all steps that rewrite it.
// One thread's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

// The bytes of a text for which a token stands.
struct TokenSpan {
    uint32_t begin_bytes = 0;
    uint32_t end_bytes = 0;
    bool operator==(const TokenSpan&) const = default;
};

struct AlignedText {
    std::string text;
    // For each byte, the beginning in the original of the character for which it stands.
    std::vector<uint32_t> from;

    void clear() {
        text.clear();
        from.clear();
    }
    void reserve(size_t bytes) {
        text.reserve(bytes);
        from.reserve(bytes);
    }
    // Lets the bytes that only `text` has got stand for the character at PLACE.
    void settle(uint32_t place) { from.resize(text.size(), place); }
    void append(std::string_view bytes, uint32_t place) {
        text += bytes;
        settle(place);
    }
    // REQUIRES: one of PLACES for each of BYTES.
    void append(std::string_view bytes, std::span<const uint32_t> places) {
        text += bytes;
        from.insert(from.end(), places.begin(), places.end());
    }
};

// Appends to PLACES the place of each byte of TEXT, which is valid UTF-8 and begins at BEGIN of the
// original.
inline void append_places(std::string_view text, uint32_t begin, std::vector<uint32_t>& places) {
    places.reserve(places.size() + text.size());
    uint32_t place = begin;
    for (size_t i = 0; i < text.size(); ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80)
            place = begin + static_cast<uint32_t>(i);
        places.push_back(place);
    }
}

}  // namespace dslaunch::text
