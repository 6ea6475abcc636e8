// The place of a token in the text that it was made of.
#pragma once

#include <cstdint>

namespace dslaunch::text {

// The bytes of a text that a token stands for.
struct TokenSpan {
    uint32_t begin_bytes = 0;
    uint32_t end_bytes = 0;
    bool operator==(const TokenSpan&) const = default;
};

}  // namespace dslaunch::text
