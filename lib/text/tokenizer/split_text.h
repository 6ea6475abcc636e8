// A text and the pieces into which a tokenizer has cut it so far, and a step that cuts them
// further. Steps are built once, then only read, by any thread; a SplitText belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern/pattern.h"
#include "text/unicode/aligned_text.h"

namespace dslaunch::text {

// The bytes [begin, end) of a piece in SplitText::text.
struct PieceRange {
    uint32_t begin = 0;
    uint32_t end = 0;
};

// The pieces of one text, and memory that is reused from text to text.
struct SplitText {
    std::string_view text;
    std::span<const uint32_t> from;  // the place of each byte, as in AlignedText
    std::vector<PieceRange> list;    // no piece is empty
    size_t bytes_max = 0;            // of `text`, however many steps rewrite it

    AlignedText written;  // `text` after a step that rewrites it
    AlignedText spare;
    std::vector<PieceRange> spare_list;
    std::vector<Match> matches;

    // Starts with one piece, WHOLE. REQUIRES: WHOLE and PLACES outlive the pieces; WHOLE is not
    // empty.
    void begin(std::string_view whole, std::span<const uint32_t> places, size_t bytes_most) {
        text = whole;
        from = places;
        list.assign(1, {0, static_cast<uint32_t>(whole.size())});
        bytes_max = bytes_most;
    }
};

// One step of a pre-tokenizer.
class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    // Replaces the pieces by smaller ones, and possibly rewrites the text. Throws Error{kInput} if
    // finding the matches takes too long, or if the text grows too large.
    virtual void apply(SplitText& pieces) const = 0;
};

}  // namespace dslaunch::text
