// Text as tokens and back, for whatever a model's tokens are. Data path: prompts -> [here] ->
// engine -> [here] -> text. Implementations: a tokenizer.json (tokenizer_codec.h), bytes
// (byte_codec.h). Const functions: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::decoder {

// The text of tokens that come one by one.
class TextStream {
  public:
    virtual ~TextStream() = default;
    // The text that TOKEN makes certain, whole characters, perhaps none yet.
    [[nodiscard]] virtual std::string push(int32_t token) = 0;
    // What is left at the end; bytes that are no character become U+FFFD.
    [[nodiscard]] virtual std::string finish() = 0;
};

class TextCodec {
  public:
    virtual ~TextCodec() = default;
    // IS_RENDERED: TEXT is that of a chat template, which has the special tokens in it.
    [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text,
                                                      bool is_rendered) const = 0;
    // The stream of tokens that follow those of BEFORE, whose text is not in it; without any, of a
    // text of its own, as an answer is.
    [[nodiscard]] virtual std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const = 0;
};

}  // namespace dslaunch::decoder
