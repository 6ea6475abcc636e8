#include "decoder/codec/text_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

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
    std::string held_;  // the end of BEFORE's text that stream_ has not returned yet
};

// A stream that holds back the first bytes of a UTF-8 character until the character is complete, or
// until a byte arrives that does not continue it.
class ByteStream final : public TextStream {
  public:
    std::string push(int32_t token) override {
        held_ += byte_token_text(token);
        const size_t whole = held_.size() - unfinished_bytes(held_);
        const std::string ready = held_.substr(0, whole);
        held_.erase(0, whole);
        return ready;
    }
    std::string finish() override { return std::exchange(held_, {}); }

  private:
    // Returns the number of bytes at the end of TEXT that begin a character but do not complete it.
    static size_t unfinished_bytes(std::string_view text) {
        for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
            const auto byte = static_cast<unsigned char>(text[text.size() - back]);
            if ((byte & 0xC0U) == 0x80U) continue;  // continues a character
            const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
            return back < length ? back : 0;
        }
        return 0;
    }

    std::string held_;
};

}  // namespace

std::vector<int32_t> TokenizerCodec::encode(std::string_view text, bool is_rendered) const {
    return tokenizer_.encode(text, {.add_special_tokens = !is_rendered});
}

std::unique_ptr<TextStream> TokenizerCodec::stream(std::span<const int32_t> before) const {
    return std::make_unique<TokenizerStream>(tokenizer_, before);
}

std::vector<int32_t> ByteCodec::encode(std::string_view text, bool /*is_rendered*/) const {
    std::vector<int32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
}

std::unique_ptr<TextStream> ByteCodec::stream(std::span<const int32_t> /*before*/) const {
    return std::make_unique<ByteStream>();
}

std::string byte_token_text(int64_t token) {
    if (token > 255) return fmt::format("<{}>", token);
    const auto byte = static_cast<unsigned char>(token);
    if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f))
        return std::string(1, static_cast<char>(byte));
    return fmt::format("\\x{:02x}", byte);
}

}  // namespace dslaunch::decoder
