// Judges whether tokens can be the model's own. Bytes, and the tokens of a small vocabulary, are
// all among the smallest numbers of a large one. Data path: token file, rows -> [here] -> a
// warning. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/tokens/token_file.h"

namespace dslaunch::storage {

// The counts of the smallest tokens.
class TokenCounts {
  public:
    // VOCABULARY is the number of tokens that the model knows.
    explicit TokenCounts(int64_t vocabulary);

    // Counts TOKEN. Returns false if a warning is no longer possible, so that the caller need not
    // add more tokens. No warning is possible if the vocabulary is small, or if a token was added
    // that does not count as small.
    bool add(int64_t token);

    // Returns a warning if another tokenizer seems to have made the added tokens, otherwise "".
    // Texts with only few different characters (sums, moves, bases) have small tokens too, and
    // cause no warning.
    [[nodiscard]] std::string foreign_text() const;

  private:
    [[nodiscard]] bool look_like_bytes() const;

    int64_t vocabulary_;
    std::vector<int64_t> counts_;  // by token, of the smallest; empty if no warning is possible
    int64_t added_ = 0;
};

// Returns the warning for the tokens of FILE; empty if there is none. Reads only up to the first
// token that is not among the smallest.
[[nodiscard]] std::string foreign_text(const TokenFile& file, int64_t vocabulary);

}  // namespace dslaunch::storage
