// The pieces that a text is cut into, and a step that cuts them finer. Steps are built once, then
// only read: any threads; pieces are one thread's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern/pattern.h"
#include "text/unicode/aligned_text.h"

namespace dslaunch::text {

struct Piece {
    uint32_t begin = 0;
    uint32_t end = 0;
};

// Pieces of one text, and memory that is used again from text to text.
struct Pieces {
    std::string_view text;
    std::span<const uint32_t> from;  // of each byte of it, as in AlignedText
    std::vector<Piece> list;         // no piece is empty
    size_t bytes_max = 0;            // of `text`, however many steps write it

    AlignedText written;  // `text` after a step that rewrites it
    AlignedText spare;
    std::vector<Piece> spare_list;
    std::vector<Match> matches;

    // Begins with one piece, WHOLE. REQUIRES: WHOLE and PLACES outlive the pieces; no empty piece.
    void begin(std::string_view whole, std::span<const uint32_t> places, size_t bytes_most) {
        text = whole;
        from = places;
        list.assign(1, {0, static_cast<uint32_t>(whole.size())});
        bytes_max = bytes_most;
    }
};

class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    // Replaces the pieces, and perhaps the text, by finer ones. Throws Error{kInput} as
    // Pattern::find_all and require_room do.
    virtual void apply(Pieces& pieces) const = 0;
};

}  // namespace dslaunch::text
