// The decoding of tokens one by one: each append() returns the text that can no longer change. One
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer/decoder_stage.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::text {

// The decoding of one sequence of tokens by a Tokenizer.
class TokenStream {
  public:
    // TOKENIZER must outlive the stream.
    explicit TokenStream(const Tokenizer& tokenizer, bool skip_special = true);

    // Returns the text that ID makes final: whole characters, perhaps none. The results of all
    // calls, followed by the result of finish(), are equal to Tokenizer::decode of all ids. Throws
    // Error{kInput} if ID is below 0.
    [[nodiscard]] std::string append(int32_t id);
    // Returns the text that was still held back. REQUIRES: called once, at the end.
    [[nodiscard]] std::string finish();

  private:
    const TokenizerParts* parts_;
    DecoderRun run_;
    bool skips_special_;
};

}  // namespace dslaunch::text
