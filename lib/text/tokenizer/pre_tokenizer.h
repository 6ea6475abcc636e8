// The `pre_tokenizer` of a tokenizer.json, which cuts normalized text into the pieces that the
// model takes one by one. Built once, then only read: any threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/text/json_place.h"
#include "text/tokenizer/split_text.h"

namespace dslaunch::text {

// The steps of a pre-tokenizer, in order.
struct PreTokenizers {
    std::vector<std::unique_ptr<const PreTokenizer>> steps;
    // True if the last step, and no other step, is ByteLevel: the model may then take bytes.
    bool ends_in_bytes = false;
};

// The options of reading the steps.
struct PreTokenizerReading {
    // If true, a ByteLevel at the end leaves bytes as they are instead of writing characters for
    // them.
    bool leaves_bytes = false;
};

// Reads the step at PLACE, or the steps of a Sequence in order. Throws Error{kInput} that names the
// place of a wrong or unknown part.
[[nodiscard]] PreTokenizers read_pre_tokenizers(const JsonPlace& place,
                                                PreTokenizerReading reading);

}  // namespace dslaunch::text
