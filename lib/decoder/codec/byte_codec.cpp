#include "decoder/codec/byte_codec.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace dslaunch::decoder {

namespace {

// Bytes of a character that lacks some are kept until they come, or something else does.
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
    // Bytes at the end of TEXT that begin a character and do not end it.
    static size_t unfinished_bytes(std::string_view text) {
        for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
            const auto byte = static_cast<unsigned char>(text[text.size() - back]);
            if ((byte & 0xC0U) == 0x80U) continue;  // goes on a character
            const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
            return back < length ? back : 0;
        }
        return 0;
    }

    std::string held_;
};

}  // namespace

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
