// The codec of models whose tokens are the bytes of text, as `dslaunch tokens bytes` makes them.
// See text_codec.h.
#pragma once

#include "decoder/codec/text_codec.h"

namespace dslaunch::decoder {

// Vocabularies up to this size are bytes plus a few special tokens.
inline constexpr int64_t kByteVocabMax = 272;

class ByteCodec final : public TextCodec {
  public:
    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              bool is_rendered) const override;
    [[nodiscard]] std::unique_ptr<TextStream> stream(
        std::span<const int32_t> before = {}) const override;
};

// The text of a byte token: the byte itself; control characters other than newline and tab as \xNN,
// for a model must not control a terminal; a token above 255 as <256>.
[[nodiscard]] std::string byte_token_text(int64_t token);

}  // namespace dslaunch::decoder
