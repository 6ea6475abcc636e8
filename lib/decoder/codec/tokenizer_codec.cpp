#include "decoder/codec/tokenizer_codec.h"

#include <algorithm>

#include "text/tokenizer/token_stream.h"

namespace dslaunch::decoder {

namespace {

class TokenizerStream final : public TextStream {
  public:
    TokenizerStream(const text::Tokenizer& tokenizer, std::span<const int32_t> before)
        : stream_(tokenizer) {
        if (before.empty()) return;
        size_t given = 0;
        for (const int32_t token : before) given += stream_.append(token).size();
        const std::string text = tokenizer.decode(before);
        if (given < text.size()) held_ = text.substr(given);
    }

    std::string push(int32_t token) override { return without_held(stream_.append(token)); }
    std::string finish() override { return without_held(stream_.finish()); }

  private:
    std::string without_held(std::string text) {
        if (held_.empty() || text.empty()) return text;
        const auto shared =
            static_cast<size_t>(std::ranges::mismatch(held_, text).in1 - held_.begin());
        text.erase(0, shared);
        held_ = text.empty() ? held_.substr(shared) : std::string();
        return text;
    }

    text::TokenStream stream_;
    std::string held_;  // the end of the text before, which the stream has still to give
};

}  // namespace

std::vector<int32_t> TokenizerCodec::encode(std::string_view text, bool is_rendered) const {
    return tokenizer_.encode(text, {.add_special_tokens = !is_rendered});
}

std::unique_ptr<TextStream> TokenizerCodec::stream(std::span<const int32_t> before) const {
    return std::make_unique<TokenizerStream>(tokenizer_, before);
}

}  // namespace dslaunch::decoder
