// A request to an engine: a text to continue, and the rules for its continuation.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/sample/sampler.h"

namespace dslaunch::decoder {

// A text to continue, and the rules by which it is continued.
struct Request {
    std::vector<int32_t> prompt;  // at least one token, each in the vocabulary
    int64_t tokens_max = 0;       // tokens to make at most
    SamplingOptions sampling;
    std::vector<int32_t> end_tokens;  // the text ends at any of these
};

}  // namespace dslaunch::decoder
