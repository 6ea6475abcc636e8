#include "tokens/tokenizer/token_stream.h"

#include "base/error.h"
#include "tokens/tokenizer/tokenizer_parts.h"

namespace dslaunch::tokens {

TokenStream::TokenStream(const Tokenizer& tokenizer, bool skip_special)
    : parts_(tokenizer.parts_.get()), run_(parts_->decoder), skips_special_(skip_special) {}

std::string TokenStream::append(int32_t id) {
    std::string out;
    append_to(id, out);
    return out;
}

void TokenStream::append_to(int32_t id, std::string& out) {
    if (id < 0) fail(ExitCode::kInput, "{} is no number of a token: it cannot be decoded", id);
    const auto text = parts_->text_of(id);
    if (!text || (skips_special_ && parts_->specials[static_cast<size_t>(id)])) return;
    run_.push(*text, out);
}

std::string TokenStream::finish() {
    std::string out;
    run_.finish(out);
    return out;
}

}  // namespace dslaunch::tokens
