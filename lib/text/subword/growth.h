// The limit to which a text may grow while a tokenizer prepares it, and while tokens are converted
// back to text. Real tokenizers make a text a few times larger, but a tokenizer.json may ask for
// many steps, each of which doubles the text. Pure.
#pragma once

#include <cstddef>

#include "base/text/json_place.h"

namespace dslaunch::text {

// The largest size of a string that a step looks for or writes. In the worst case, finding and
// writing such strings takes this many operations per byte of the text.
inline constexpr size_t kTokenBytesMax = 1024;

// Returns the size to which a text of BYTES bytes may grow: some tens of times BYTES, and below 2
// GiB, because places in a text are counted in 32 bits.
[[nodiscard]] size_t grown_max(size_t bytes);

// Throws Error{kInput}: the text may not grow above BYTES_MAX bytes.
[[noreturn]] void refuse_growth(size_t bytes_max);

// Throws Error{kInput} if BYTES is above BYTES_MAX. It is called for every character.
inline void require_room(size_t bytes, size_t bytes_max) {
    if (bytes > bytes_max) [[unlikely]]
        refuse_growth(bytes_max);
}

// Returns the string at PLACE. Throws Error{kInput} naming PLACE if it is longer than
// kTokenBytesMax.
[[nodiscard]] const std::string& short_text(const JsonPlace& place);

}  // namespace dslaunch::text
