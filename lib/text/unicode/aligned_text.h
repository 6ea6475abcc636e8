// A text that several steps rewrite. For each of its bytes, it stores the place in the original
// text. Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

// The bytes of a text that a token stands for.
struct TokenSpan {
    uint32_t begin_bytes = 0;
    uint32_t end_bytes = 0;
    bool operator==(const TokenSpan&) const = default;
};

// A rewritten text, and the place of each of its bytes in the original text. While a part of the
// text is being written, its places may be missing until settle() adds them.
struct AlignedText {
    std::string text;
    // For each byte of `text`, where its character begins in the original text.
    std::vector<uint32_t> from;

    // Clear the text and the places, or reserve memory for BYTES bytes of text and their places.
    void clear() {
        text.clear();
        from.clear();
    }
    void reserve(size_t bytes) {
        text.reserve(bytes);
        from.reserve(bytes);
    }
    // Gives PLACE to the bytes of `text` that have no place yet.
    void settle(uint32_t place) { from.resize(text.size(), place); }
    // Appends BYTES, which all get PLACE.
    void append(std::string_view bytes, uint32_t place) {
        text += bytes;
        settle(place);
    }
    // REQUIRES: PLACES has one place for each of BYTES.
    void append(std::string_view bytes, std::span<const uint32_t> places) {
        text += bytes;
        from.insert(from.end(), places.begin(), places.end());
    }
};

// Appends to PLACES one place for each byte of TEXT: the beginning of the byte's character in the
// original text. TEXT is valid UTF-8 and begins at byte BEGIN of the original text.
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
