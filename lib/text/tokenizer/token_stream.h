// Decodes tokens as they come: each append gives the text that can no longer change. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::text {

class TokenStream {
  public:
    // TOKENIZER must outlive the stream.
    explicit TokenStream(const Tokenizer& tokenizer, bool skip_special = true);

    // Returns the text that ID makes final: whole characters, perhaps no character. All results and
    // the result of finish(), one after the other, are Tokenizer::decode of all ids. Throws
    // Error{kInput} on one below 0.
    [[nodiscard]] std::string append(int32_t id);
    // Returns the text that was still held back. REQUIRES: once, at the end.
    [[nodiscard]] std::string finish();

  private:
    const TokenizerParts* parts_;
    DecoderRun run_;
    bool skips_special_;
};

}  // namespace dslaunch::text
