#include "infer/text/byte_codec.h"

#include <fmt/core.h>

namespace dslaunch::infer {

namespace {

class ByteStream final : public TextStream {
  public:
    std::string push(int32_t token) override { return byte_token_text(token); }
    std::string finish() override { return {}; }
};

}  // namespace

std::vector<int32_t> ByteCodec::encode(std::string_view text, bool /*is_rendered*/) const {
    std::vector<int32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
}

std::unique_ptr<TextStream> ByteCodec::stream() const {
    return std::make_unique<ByteStream>();
}

std::string byte_token_text(int64_t token) {
    if (token > 255) return fmt::format("<{}>", token);
    const auto byte = static_cast<unsigned char>(token);
    if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f))
        return std::string(1, static_cast<char>(byte));
    return fmt::format("\\x{:02x}", byte);
}

}  // namespace dslaunch::infer
