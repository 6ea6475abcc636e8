// The `post_processor` of a tokenizer.json, which adds tokens around the tokens of a single text.
#pragma once

#include <cstdint>
#include <vector>

#include "base/text/json_place.h"
#include "text/subword/vocabulary.h"

namespace dslaunch::text {

// A part of the token sequence that the post-processor makes.
struct PostPart {
    bool is_text = false;      // true for the tokens of the text
    std::vector<int32_t> ids;  // otherwise these tokens, if special tokens are wanted
};

// Reads the parts. Throws Error{kInput} that names the place of a wrong or unknown part.
[[nodiscard]] std::vector<PostPart> read_post_processor(const JsonPlace& place);

}  // namespace dslaunch::text
