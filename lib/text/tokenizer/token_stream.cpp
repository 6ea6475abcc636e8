#include "text/tokenizer/token_stream.h"

#include "text/tokenizer/tokenizer_parts.h"

namespace dslaunch::text {

TokenStream::TokenStream(const Tokenizer& tokenizer, bool skip_special)
    : parts_(tokenizer.parts_.get()), run_(parts_->decoder), skips_special_(skip_special) {}

std::string TokenStream::append(int32_t id) {
    std::string out;
    parts_->decode(id, skips_special_, run_, out);
    return out;
}

std::string TokenStream::finish() {
    std::string out;
    run_.finish(out);
    return out;
}

}  // namespace dslaunch::text
