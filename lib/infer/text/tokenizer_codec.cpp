#include "infer/text/tokenizer_codec.h"

#include "tokens/tokenizer/token_stream.h"

namespace dslaunch::infer {

namespace {

class TokenizerStream final : public TextStream {
  public:
    explicit TokenizerStream(const tokens::Tokenizer& tokenizer) : stream_(tokenizer) {}

    std::string push(int32_t token) override { return stream_.append(token); }
    std::string finish() override { return stream_.finish(); }

  private:
    tokens::TokenStream stream_;
};

}  // namespace

std::vector<int32_t> TokenizerCodec::encode(std::string_view text, bool is_rendered) const {
    return tokenizer_.encode(text, {.add_special_tokens = !is_rendered});
}

std::unique_ptr<TextStream> TokenizerCodec::stream() const {
    return std::make_unique<TokenizerStream>(tokenizer_);
}

}  // namespace dslaunch::infer
