// How a tokenizer cuts normalized text into the pieces that its model takes one by one: the
// `pre_tokenizer` of a tokenizer.json. Built once, then only read: any threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_place.h"
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

    std::string written;  // `text` after a step that rewrites it
    std::string spare_text;
    std::vector<Piece> spare_list;
    std::vector<Match> matches;
};

class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    // Replaces the pieces, and perhaps the text, by finer ones. Throws Error{kInput} as
    // Pattern::find_all does.
    virtual void apply(Pieces& pieces) const = 0;
};

struct PreTokenizers {
    std::vector<std::unique_ptr<const PreTokenizer>> steps;
    // True if the last step is ByteLevel and no other one is: the model may then take bytes.
    bool ends_in_bytes = false;
};

struct PreTokenizerReading {
    // A last ByteLevel leaves bytes as they are instead of writing characters for them.
    bool leaves_bytes = false;
};

// The steps of PLACE, a Sequence's one after the other. Throws Error{kInput} that names the place
// of what is not known or wrong.
[[nodiscard]] PreTokenizers read_pre_tokenizers(const JsonPlace& place,
                                                PreTokenizerReading reading);

}  // namespace dslaunch::tokens
