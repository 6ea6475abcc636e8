// The `pre_tokenizer` of a tokenizer.json, which cuts normalized text into the pieces that the
// model takes one by one. Built once, then only read: any threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/text/json_place.h"
#include "text/tokenizer/pieces.h"

namespace dslaunch::text {

struct PreTokenizers {
    std::vector<std::unique_ptr<const PreTokenizer>> steps;
    // True if the last step is ByteLevel and no other one is: the model may then take bytes.
    bool ends_in_bytes = false;
};

struct PreTokenizerReading {
    // A last ByteLevel leaves bytes as they are instead of writing characters for them.
    bool leaves_bytes = false;
};

// Reads the steps of PLACE, a Sequence's one after the other. Throws Error{kInput} that names the
// place of a wrong or unknown part.
[[nodiscard]] PreTokenizers read_pre_tokenizers(const JsonPlace& place,
                                                PreTokenizerReading reading);

}  // namespace dslaunch::text
