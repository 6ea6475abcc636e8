#include "text/subword/growth.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace dslaunch::text {

size_t grown_max(size_t bytes) {
    // In the worst case, NFKD turns a character of 3 bytes into 33 bytes, and a byte-level step
    // then writes 2 bytes for each of them, which is 22 times the size.
    constexpr size_t kFactor = 64, kLeast = size_t{64} << 10, kMost = INT32_MAX;
    if (bytes > kMost / kFactor) return kMost;
    return std::min(kLeast + kFactor * bytes, kMost);
}

void refuse_growth(size_t bytes_max) {
    fail(ExitCode::kInput,
         "a text grows beyond {} bytes in the normalizer, pre_tokenizer or decoder of "
         "tokenizer.json, which write far more text than they are given; use the model's own "
         "tokenizer.json, or cut a long text into lines",
         bytes_max);
}

const std::string& short_text(const JsonPlace& place) {
    const std::string& text = place.text();
    if (text.size() > kTokenBytesMax)
        place.refuse(fmt::format("the string has {} bytes, but at most {} are supported",
                                 text.size(), kTokenBytesMax));
    return text;
}

}  // namespace dslaunch::text
