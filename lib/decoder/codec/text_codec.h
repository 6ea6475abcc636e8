// Text as tokens and back: by a tokenizer.json, or as bytes for models whose tokens are the bytes
// of text, as `dslaunch tokens bytes` makes them. Data path: prompts -> [here] -> engine -> [here]
// -> text. Const functions: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace dslaunch::decoder {

// The text of tokens that come one by one.
class TextStream {
  public:
    virtual ~TextStream() = default;
    // Returns the text that TOKEN makes certain, whole characters, perhaps none yet.
    [[nodiscard]] virtual std::string push(int32_t token) = 0;
    // Returns what is left at the end; bytes that are no character become U+FFFD.
    [[nodiscard]] virtual std::string finish() = 0;
};

class TextCodec {
  public:
    virtual ~TextCodec() = default;
    // IS_RENDERED: a chat template has written TEXT, so the special tokens are in it.
    [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text,
                                                      bool is_rendered) const = 0;
    // Returns the stream of the tokens after BEFORE, without BEFORE's text. An empty BEFORE begins
    // a text of its own, such as an answer.
    [[nodiscard]] virtual std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const = 0;
};

class TokenizerCodec final : public TextCodec {
  public:
    // TOKENIZER must outlive this.
    explicit TokenizerCodec(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              bool is_rendered) const override;
    // Special tokens have no text.
    [[nodiscard]] std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const override;

  private:
    const text::Tokenizer& tokenizer_;
};

// Vocabularies up to this size are bytes plus a few special tokens.
inline constexpr int64_t kByteVocabMax = 272;

class ByteCodec final : public TextCodec {
  public:
    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              bool is_rendered) const override;
    [[nodiscard]] std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const override;
};

// Returns the text of a byte token: the byte itself; control characters other than newline and tab
// as \xNN, since a model must not control a terminal; a token above 255 as <256>.
[[nodiscard]] std::string byte_token_text(int64_t token);

}  // namespace dslaunch::decoder
