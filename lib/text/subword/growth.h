// The size to which a text may grow while a tokenizer prepares it, and while tokens become text
// again. Real tokenizers grow it a few times; a tokenizer.json may ask for steps that each double
// it. Pure.
#pragma once

#include <cstddef>

#include "base/text/json_place.h"

namespace dslaunch::text {

// The longest text that a step may write for a match: finding and writing it take so many steps a
// byte at worst.
inline constexpr size_t kTokenBytesMax = 1024;

// Returns the size that BYTES of text may grow to: some tens of times as much, and below 2 GiB, as
// places in a text are counted in 32 bits.
[[nodiscard]] size_t grown_max(size_t bytes);

[[noreturn]] void refuse_growth(size_t bytes_max);

// Throws Error{kInput} if BYTES are more than BYTES_MAX. It is called for every character.
inline void require_room(size_t bytes, size_t bytes_max) {
    if (bytes > bytes_max) [[unlikely]]
        refuse_growth(bytes_max);
}

// Returns the text at PLACE. Throws Error{kInput} naming it if longer than kTokenBytesMax.
[[nodiscard]] const std::string& short_text(const JsonPlace& place);

}  // namespace dslaunch::text
