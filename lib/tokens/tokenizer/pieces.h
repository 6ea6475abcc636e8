// The pieces that a text is cut into, and a step that cuts them finer. Steps are built once, then
// only read: any threads; pieces are one thread's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/pattern/pattern.h"

namespace dslaunch::tokens {

struct Piece {
    uint32_t begin = 0;
    uint32_t end = 0;
    bool at_origin = false;  // it begins with the first character of the original text
};

// Pieces of one text, and memory that is used again from text to text.
struct Pieces {
    std::string_view text;
    std::vector<Piece> list;  // none of them is empty
    size_t bytes_max = 0;     // of `text`, however many steps write it

    std::string written;  // `text` after a step that rewrites it
    std::string spare_text;
    std::vector<Piece> spare_list;
    std::vector<Match> matches;
};

class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    // Replaces the pieces, and perhaps the text, by finer ones. Throws Error{kInput} as
    // Pattern::find_all and require_room do.
    virtual void apply(Pieces& pieces) const = 0;
};

}  // namespace dslaunch::tokens
