// Converts text to tokens and back. It uses a tokenizer.json, or takes each byte of a text as a
// token, as `dslaunch tokens bytes` does. Data path: prompts -> [here] -> engine -> [here] -> text.
// Const functions: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace dslaunch::decoder {

// The text of tokens that arrive one by one.
class TextStream {
  public:
    virtual ~TextStream() = default;
    // Adds TOKEN. Returns the text that is certain by now, in whole characters; it may be empty.
    [[nodiscard]] virtual std::string push(int32_t token) = 0;
    // Returns the rest of the text after the last token; bytes that are not a character become
    // U+FFFD.
    [[nodiscard]] virtual std::string finish() = 0;
};

// The two directions between a model's tokens and text.
class TextCodec {
  public:
    virtual ~TextCodec() = default;
    // Returns the tokens of TEXT. IS_RENDERED: true if a chat template wrote TEXT. TEXT then
    // contains the special tokens already.
    [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text,
                                                      bool is_rendered) const = 0;
    // Returns a stream for the tokens that follow BEFORE; the text of BEFORE is not repeated. If
    // BEFORE is empty, the tokens are a separate text, such as an answer.
    [[nodiscard]] virtual std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const = 0;
};

// The codec of models with a tokenizer.json.
class TokenizerCodec final : public TextCodec {
  public:
    // TOKENIZER must outlive this object.
    explicit TokenizerCodec(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              bool is_rendered) const override;
    // Returns a stream in which special tokens have no text.
    [[nodiscard]] std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const override;

  private:
    const text::Tokenizer& tokenizer_;
};

// A vocabulary up to this size is taken to be bytes plus a few special tokens.
inline constexpr int64_t kByteVocabMax = 272;

// The codec of models whose tokens are the bytes of text.
class ByteCodec final : public TextCodec {
  public:
    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              bool is_rendered) const override;
    [[nodiscard]] std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const override;
};

// Returns the text of a byte token: the byte itself; \xNN for control characters other than newline
// and tab, since a model must not control a terminal; <256> for a token above 255.
[[nodiscard]] std::string byte_token_text(int64_t token);

}  // namespace dslaunch::decoder
