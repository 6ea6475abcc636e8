// The codec of a tokenizer.json. See text_codec.h.
#pragma once

#include "decoder/codec/text_codec.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::decoder {

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

}  // namespace dslaunch::decoder
